// Rates of the product's own calls on one GPU, in TFLOP/s: packed attention (forward, backward, ring halves; cuDNN and
// FlashAttention-2) on 16,384 tokens, the products of a layer beside ATen's, and the fused head against the plain
// products that it needs, alternating in one run. FLOPs: attention forward 4 heads d sum(Lq Lkv), half when causal,
// backward 2.5 times that; head 6 rows h v. Usage: bench_gpu_kernels
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "ringfold/device/device.h"
#include "ringfold/kernels/linear_log_prob.h"
#include "ringfold/kernels/product.h"
#include "ringfold/kernels/varlen_attention.h"

namespace ringfold {
namespace {

constexpr int64_t kTokens = 16384;

// Of one call, several on end: in training the host is ahead of the GPU, so that no gap lies between calls.
double median_ms(at::Device device, const std::function<void()>& work) {
  constexpr int kCalls = 4;
  for (int i = 0; i < 5; ++i) work();
  std::vector<double> times;
  for (int i = 0; i < 15; ++i) {
    StreamTimer timer(device);
    timer.begin();
    for (int call = 0; call < kCalls; ++call) work();
    timer.end();
    times.push_back(timer.take_ms() / kCalls);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

enum class Blocks { kCausal, kFirstKeys, kLastQueries };

std::vector<BlockRows> blocks_of(const std::vector<int64_t>& lengths, Blocks kind) {
  std::vector<BlockRows> rows;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    BlockRows block{begin, length, begin, length};
    if (kind == Blocks::kFirstKeys) block.kv_count = length / 2;
    if (kind == Blocks::kLastQueries) block.q_begin = begin + length / 2, block.q_count = length - length / 2;
    rows.push_back(block);
    begin += length;
  }
  return rows;
}

void attention(at::Device device, const char* name, const std::vector<int64_t>& lengths, Blocks kind,
               const HeadShape& shape) {
  const auto options = at::TensorOptions(at::kBFloat16).device(device);
  const at::Tensor q = at::randn({kTokens, shape.heads, shape.head_dim}, options);
  const at::Tensor k = at::randn({kTokens, shape.kv_heads, shape.head_dim}, options), v = at::randn_like(k);
  const at::Tensor dout = at::randn_like(q);
  const VarlenBlocks blocks(kind == Blocks::kCausal ? BlockMask::kCausal : BlockMask::kFull, blocks_of(lengths, kind),
                            shape, device);
  double pairs = 0;
  for (const BlockRows& block : blocks.rows) {
    const double area = static_cast<double>(block.q_count) * static_cast<double>(block.kv_count);
    pairs += kind == Blocks::kCausal ? area / 2 : area;
  }
  const double forward_tflop = 4e-12 * static_cast<double>(shape.heads * shape.head_dim) * pairs;
  std::string line = fmt::format("{:<34}", name);
  for (const VarlenKernel kernel : {VarlenKernel::kCudnn, VarlenKernel::kFlash}) {
    AttentionBlock out = varlen_attention_forward(kernel, blocks, q, k, v, 0.088);
    const double forward = median_ms(device, [&] { out = varlen_attention_forward(kernel, blocks, q, k, v, 0.088); });
    const double backward = median_ms(
        device, [&] { varlen_attention_backward(kernel, blocks, dout, q, k, v, out.out_thd, out.lse_ht, 0.088); });
    line += fmt::format(" {:7.0f} {:7.0f}", forward_tflop / forward * 1e3, 2.5 * forward_tflop / backward * 1e3);
  }
  fmt::print("{}\n", line);
}

void head(at::Device device, int64_t hidden, int64_t vocabulary, int64_t rows) {
  const auto options = at::TensorOptions(at::kBFloat16).device(device);
  const at::Tensor x = at::randn({rows, hidden}, options), w = at::randn({vocabulary, hidden}, options).mul_(0.02);
  const at::Tensor target = at::randint(vocabulary, {rows}, options.dtype(at::kLong));
  const at::Tensor dw = at::zeros({vocabulary, hidden}, options.dtype(at::kFloat));
  const LinearLogProbOptions chunks{4096, 1.0};
  const ChunkLoss loss = [](const TokenScores& scores, int64_t) { return scores.log_prob_n.sum().neg(); };
  reset_peak_memory(device);
  const int64_t before = device_memory(device).allocated_bytes;
  const double fused = median_ms(device, [&] { linear_loss_gradients(x, w, target, chunks, loss, dw); });
  const int64_t extra = device_memory(device).peak_allocated_bytes - before;
  const at::Tensor part = x.narrow(0, 0, std::min<int64_t>(rows, chunks.chunk_rows));
  const at::Tensor dlogits = at::randn({part.size(0), vocabulary}, options);
  const double products = median_ms(device, [&] {
    for (int64_t begin = 0; begin < rows; begin += chunks.chunk_rows) {
      at::mm(part, w.t());
      at::mm(dlogits, w);
      add_product(dw, dlogits.t(), part);
    }
  });
  const double tflop = 6e-12 * static_cast<double>(rows * hidden) * static_cast<double>(vocabulary);
  fmt::print("head {} x {}, {:>6} rows: {:7.0f} TFLOP/s, plain products {:7.0f} ({:.1f} %), extra memory {:.2f} GB\n",
             hidden, vocabulary, rows, tflop / fused * 1e3, tflop / products * 1e3, 100 * products / fused,
             static_cast<double>(extra) / 1e9);
}

// The products of one Qwen3-4B layer on 8,192 tokens, ours and ATen's in turn, so long that the card runs at its cap.
void layer_products(at::Device device) {
  const auto halves = at::TensorOptions(at::kBFloat16).device(device);
  constexpr int64_t kRows = 8192, kHidden = 2560;
  struct Weight {
    const char* name;
    int64_t in, out;
    bool residual;
  };
  fmt::print(
      "products of a layer, 8192 rows (TFLOP/s)   forward ATen    ours  input gradient ATen    ours  weight gradient "
      "ATen    ours\n");
  double ours_ms = 0, plain_ms = 0;
  for (const Weight& shape : {Weight{"q k v", kHidden, 6144, false}, Weight{"out", 4096, kHidden, true},
                              Weight{"gate up", kHidden, 19456, false}, Weight{"down", 9728, kHidden, true}}) {
    const at::Tensor x = at::randn({kRows, shape.in}, halves), w = at::randn({shape.out, shape.in}, halves).mul_(0.02);
    const at::Tensor y = at::randn({kRows, shape.out}, halves);
    const at::Tensor dw = at::zeros({shape.out, shape.in}, halves.dtype(at::kFloat));
    const std::vector<std::pair<std::function<void()>, std::function<void()>>> pairs = {
        {[&] { shape.residual ? at::addmm(y, x, w.t()) : at::mm(x, w.t()); },
         [&] { shape.residual ? product_plus(y, x, w.t()) : product(x, w.t()); }},
        {[&] { at::mm(y, w); }, [&] { product(y, w); }},
        {[&] {
           at::Tensor into = dw;
           at::addmm_out(into, into, y.t(), x, at::kFloat);
         },
         [&] { add_product(dw, y.t(), x); }}};
    const double tflop = 2e-12 * static_cast<double>(kRows * shape.in * shape.out);
    std::string line = fmt::format("{:<42}", shape.name);
    for (const auto& [plain, ours] : pairs) {
      double plain_total = 0, ours_total = 0;
      constexpr int kRounds = 6, kCalls = 60;
      for (int round = 0; round < kRounds; ++round) {
        for (const bool own : {false, true}) {
          StreamTimer timer(device);
          timer.begin();
          for (int call = 0; call < kCalls; ++call) own ? ours() : plain();
          timer.end();
          (own ? ours_total : plain_total) += timer.take_ms() / (kRounds * kCalls);
        }
      }
      line += fmt::format(" {:12.0f} {:7.0f}      ", tflop / plain_total * 1e3, tflop / ours_total * 1e3);
      plain_ms += plain_total;
      ours_ms += ours_total;
    }
    fmt::print("{}\n", line);
  }
  fmt::print("all products of a layer: ATen {:.3f} ms, ours {:.3f} ms\n", plain_ms, ours_ms);
}

int run() {
  const at::Device device = open_device("cuda", 0);
  const c10::NoGradGuard no_grad;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a run that is cut short leaves what it has measured
  layer_products(device);
  const HeadShape qwen{32, 8, 128};
  const auto equal = [](int64_t length) { return std::vector<int64_t>(kTokens / length, length); };
  const std::vector<int64_t> mixed = {9000, 3000, 1500, 900, 700, 500, 400, 384};
  fmt::print("attention, 32 / 8 heads of 128      cudnn fwd   bwd  flash fwd   bwd   (TFLOP/s)\n");
  for (const int64_t length : {512, 2048, 8192, 16384}) {
    attention(device, fmt::format("causal {} x {}", kTokens / length, length).c_str(), equal(length), Blocks::kCausal,
              qwen);
  }
  attention(device, "causal, mixed lengths", mixed, Blocks::kCausal, qwen);
  for (const int64_t length : {2048, 8192}) {
    const std::string shape = fmt::format("{} x {}", kTokens / length, length);
    attention(device, ("ring, first keys " + shape).c_str(), equal(length), Blocks::kFirstKeys, qwen);
    attention(device, ("ring, last queries " + shape).c_str(), equal(length), Blocks::kLastQueries, qwen);
  }
  attention(device, "16 / 2 heads of 256, causal 2 x 8192", equal(8192), Blocks::kCausal, {16, 2, 256});
  for (const int64_t rows : {4096, 16384, 65536}) head(device, 2560, 151936, rows);
  return 0;
}

}  // namespace
}  // namespace ringfold

int main() {
  return ringfold::run();
}
