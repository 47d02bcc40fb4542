// Stopped, killed, out of disk, damaged, and resumed: the real binary against the run that nothing happened to.
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

#include "runs/run_folder.h"

namespace ringfold {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// A run in a process group of its own. All its processes become children of the test, so that none outlives it unseen.
class Job {
 public:
  Job(const Arguments& arguments, const std::string& log) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      dup2(out, STDOUT_FILENO);
      dup2(out, STDERR_FILENO);
      std::vector<char*> argv = {const_cast<char*>(RINGFOLD_BINARY)};
      for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
      argv.push_back(nullptr);
      execv(RINGFOLD_BINARY, argv.data());
      _exit(127);
    }
    setpgid(pid_, pid_);
  }
  // SIGKILL to the launcher and every rank; returns when all are gone.
  void kill_all() {
    ::kill(-pid_, SIGKILL);
    wait();
    while (waitpid(-pid_, nullptr, 0) > 0 || errno == EINTR) {
    }
  }
  void signal(int number) const { ::kill(pid_, number); }
  bool ended() {
    if (!code_ && waitpid(pid_, &status_, WNOHANG) == pid_) note();
    return code_.has_value();
  }
  int wait() {
    if (!code_ && waitpid(pid_, &status_, 0) == pid_) note();
    return *code_;
  }

 private:
  void note() { code_ = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_); }
  pid_t pid_ = -1;
  int status_ = 0;
  std::optional<int> code_;
};

class Resume : public RunFolder {
 protected:
  Resume() {
    write("config.json", kTinyConfig);
    // 16 samples, lengths that run at c = 1 and 2.
    std::string text;
    for (int i = 0; i < 16; ++i) {
      json record = {{"response_length", 3}, {"reward", i % 3}, {"group", std::to_string(i / 4)}};
      for (int t = 0; t < 5 + i * 7 % 26; ++t) record["tokens"].push_back((t * 7 + i * 13 + 3) % 64);
      text += record.dump() + "\n";
    }
    write("data.jsonl", text);
  }
  ~Resume() override { umount(at("disk").c_str()); }

  // Four steps an epoch, shuffled; a schedule that knows its step; S = 2 on two ranks.
  Arguments train(const std::string& out, int steps, int ranks = 2) const {
    return {"launch",
            "-n",
            std::to_string(ranks),
            "--",
            "train",
            "--model-config",
            at("config.json"),
            "--data",
            at("data.jsonl"),
            "--output-dir",
            at(out),
            "--dynamic-context-parallel",
            "--use-dynamic-batch-size",
            "--calculate-per-token-loss",
            "--rollout-max-context-len",
            "32",
            "--max-tokens-per-gpu",
            ranks == 1 ? "32" : "16",
            "--global-batch-size",
            "4",
            "--seed",
            "11",
            "--lr",
            "3e-3",
            "--lr-warmup-steps",
            "2",
            "--lr-decay-style",
            "cosine",
            "--weight-decay",
            "0.1",
            "--max-steps",
            std::to_string(steps),
            "--comm-timeout-seconds",
            "60",
            "--no-progress"};
  }
  // Runs to the end; what it said.
  std::string finish(const Arguments& arguments, int code = 0) const {
    const Outcome outcome = run_binary(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    return outcome.err;
  }

  // Without what was measured.
  std::vector<json> facts(const std::string& name) const {
    std::vector<json> all = records(name);
    for (json& record : all) {
      for (const char* measured : {"plan_ms", "step_ms", "exposed_comm_ms", "idle_share", "tokens_per_s",
                                   "tflops_per_gpu", "peak_memory_bytes"}) {
        record.erase(measured);
      }
    }
    return all;
  }
  size_t lines(const std::string& name) const {
    const std::string text = read_file(at(name));
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  // Steps of the TensorBoard files of a run, each with the number of its records.
  std::map<uint64_t, int> event_steps(const std::string& run) const {
    std::map<uint64_t, int> steps;
    for (const auto& entry : fs::directory_iterator(at(run + "/tensorboard"))) {
      const std::string bytes = read_file(entry.path());
      for (size_t begin = 0; begin + 16 <= bytes.size();) {
        uint64_t length = 0;
        std::memcpy(&length, bytes.data() + begin, 8);
        const std::string message = bytes.substr(begin + 12, length);
        if (message.size() > 10 && message[9] == 0x10 && message[10] >= 0) ++steps[static_cast<uint64_t>(message[10])];
        begin += 16 + length;
      }
    }
    return steps;
  }

  bool unfinished_checkpoint(const std::string& run) const {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(at(run + "/checkpoints"), error)) {
      if (entry.path().string().ends_with(".tmp")) return true;
    }
    return false;
  }

  void expect_same_bits(const std::string& got, const std::string& unbroken, int last) const {
    const std::string step = "/checkpoints/step_" + std::to_string(last);
    for (const std::string& file :
         {std::string("/hf/model.safetensors"), step + "/hf/model.safetensors", step + "/optimizer.safetensors"}) {
      ASSERT_FALSE(read_file(at(unbroken + file)).empty()) << file;
      EXPECT_TRUE(read_file(at(got + file)) == read_file(at(unbroken + file))) << got << file;
    }
    EXPECT_EQ(facts(got + "/metrics.jsonl"), facts(unbroken + "/metrics.jsonl")) << got;
    EXPECT_EQ(records(got + "/metrics.jsonl").size(), static_cast<size_t>(last));
  }

  void copy_run(const std::string& from, const std::string& to) const {
    fs::copy(at(from), at(to), fs::copy_options::recursive);
  }
};

std::vector<double> float64_weights(const std::string& file) {
  const std::string bytes = read_file(file);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  std::vector<double> values((bytes.size() - 8 - header) / 8);
  std::memcpy(values.data(), bytes.data() + 8 + header, values.size() * 8);
  return values;
}

// RINGFOLD_KILL_POINTS=20 for the long version; RINGFOLD_KILL_SEED for other points.
TEST_F(Resume, kill_9_at_random_points_changes_no_bit) {
  const char *points = std::getenv("RINGFOLD_KILL_POINTS"), *seed = std::getenv("RINGFOLD_KILL_SEED");
  const int kills = points != nullptr ? std::atoi(points) : 6;
  std::mt19937 random(seed != nullptr ? static_cast<unsigned>(std::atoi(seed)) : 1);
  const auto below = [&](int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random); };
  const int steps = 8 * kills + 16;
  const Arguments evaluate = {
      "--eval-data", at("data.jsonl"), "--eval-interval", "3", "--save-interval", "2", "--save-total-limit", "3"};
  finish(train("unbroken", steps) + evaluate);

  int early = 0, half_written = 0;
  for (int life = 1; life <= kills; ++life) {
    Arguments arguments = train("broken", steps) + evaluate + Arguments{"--resume", "auto"};
    if (life % 3 == 0) arguments.push_back("--async-save");
    const std::string before = read_file(at("log"));
    Job job(arguments, at("log"));
    const auto begin = std::chrono::steady_clock::now();
    // Waits for something, but not for ever.
    const auto wait_for = [&](const std::function<bool()>& seen) {
      while (!seen() && !job.ended() && std::chrono::steady_clock::now() - begin < std::chrono::seconds(60)) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    };
    if (life % 5 == 2) {  // at any moment of the start: loading, resuming, cutting records
      std::this_thread::sleep_for(std::chrono::milliseconds(below(900)));
      ++early;
    } else if (life % 2 == 1) {                                    // some way into the writing of a checkpoint
      wait_for([&] { return !unfinished_checkpoint("broken"); });  // the one that the life before left
      wait_for([&] { return unfinished_checkpoint("broken"); });
      std::this_thread::sleep_for(std::chrono::microseconds(below(4000)));
    } else {  // some way into the steps
      wait_for([&] { return read_file(at("log")).find("micro-step", before.size()) != std::string::npos; });
      std::this_thread::sleep_for(std::chrono::microseconds(below(60000)));
    }
    ASSERT_FALSE(job.ended()) << "life " << life << " was over before its kill:\n" << read_file(at("log"));
    job.kill_all();
    half_written += unfinished_checkpoint("broken") ? 1 : 0;
  }
  finish(train("broken", steps) + evaluate + Arguments{"--resume", "auto"});
  expect_same_bits("broken", "unbroken", steps);
  EXPECT_EQ(facts("broken/eval.jsonl"), facts("unbroken/eval.jsonl"));
  EXPECT_EQ(event_steps("broken"), event_steps("unbroken"));
  EXPECT_EQ(read_file(at("broken/checkpoints/step_" + std::to_string(steps) + "/state.json")).size(),
            read_file(at("unbroken/checkpoints/step_" + std::to_string(steps) + "/state.json")).size());
  EXPECT_EQ(std::distance(fs::directory_iterator(at("broken/checkpoints")), {}), 3);
  std::printf("%d kills, %d of them while starting, %d with a checkpoint half written; %d steps\n", kills, early,
              half_written, steps);
}

TEST_F(Resume, in_mid_epoch_at_its_end_and_on_another_layout) {  // K2
  const Arguments grpo = {"--objective", "grpo", "--dtype", "float64"};
  finish(train("unbroken", 6) + grpo);
  for (const int stop : {2, 4}) {
    const std::string out = "stopped_" + std::to_string(stop);
    finish(train(out, 6) + grpo + Arguments{"--stop-after-steps", std::to_string(stop)});
    EXPECT_EQ(lines(out + "/metrics.jsonl"), static_cast<size_t>(stop));
    copy_run(out, out + "_1");
    EXPECT_THAT(finish(train(out, 6) + grpo + Arguments{"--resume", "auto"}),
                HasSubstr("resumed after step " + std::to_string(stop) + " from "));
    expect_same_bits(out, "unbroken", 6);

    // One rank without context parallelism goes on with what two made; the old log-probs come from the checkpoint.
    finish(train(out + "_1", 6, 1) + grpo +
           Arguments{"--resume", at(out + "_1/checkpoints/step_" + std::to_string(stop))});
    const auto got = records(out + "_1/metrics.jsonl"), expected = records("unbroken/metrics.jsonl");
    ASSERT_EQ(got.size(), 6u);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(got[i]["samples"], expected[i]["samples"]);
      EXPECT_EQ(got[i]["lr"], expected[i]["lr"]);
      EXPECT_NEAR(got[i]["loss"], expected[i]["loss"], 1e-10);
      EXPECT_NEAR(got[i]["ratio_max_dev"], expected[i]["ratio_max_dev"], 1e-9);
    }
    const auto weights = float64_weights(at(out + "_1/hf/model.safetensors"));
    const auto reference = float64_weights(at("unbroken/hf/model.safetensors"));
    ASSERT_EQ(weights.size(), reference.size());
    for (size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(weights[i], reference[i], 1e-10);
  }
  // A finished run has nothing left to do, and says so by doing nothing.
  finish(train("stopped_2", 6) + grpo + Arguments{"--resume", "auto"});
  expect_same_bits("stopped_2", "unbroken", 6);
}

TEST_F(Resume, a_damaged_checkpoint_and_another_run_are_refused_by_name) {  // K3
  const Arguments often = {"--save-interval", "2"};
  finish(train("unbroken", 6, 1) + often);
  copy_run("unbroken", "damaged");
  const std::string file = at("damaged/checkpoints/step_6/hf/model.safetensors");
  fs::resize_file(file, fs::file_size(file) - 10);
  const std::string refused =
      finish(train("damaged", 6, 1) + Arguments{"--resume", at("damaged/checkpoints/step_6")}, 2);
  EXPECT_THAT(refused, HasSubstr("ringfold: error: [checkpoint] " + file + ": size: got "));
  EXPECT_EQ(lines("damaged/metrics.jsonl"), 6u);
  const std::string fallen = finish(train("damaged", 6, 1) + often + Arguments{"--resume", "auto"});
  EXPECT_THAT(fallen, HasSubstr(file + ": size: got "));
  EXPECT_THAT(fallen, HasSubstr("step 6 is skipped, the checkpoint before it is tried"));
  EXPECT_THAT(fallen, HasSubstr("resumed after step 4"));
  EXPECT_THAT(fallen, HasSubstr("checkpoints of later steps (6) were renamed to set_aside_step_N"));
  expect_same_bits("damaged", "unbroken", 6);

  // Going back within a run, on purpose.
  EXPECT_THAT(finish(train("damaged", 6, 1) + Arguments{"--resume", at("damaged/checkpoints/step_2")}),
              HasSubstr("checkpoints of later steps (6, 4)"));
  expect_same_bits("damaged", "unbroken", 6);

  fs::copy_file(at("data.jsonl"), at("all.jsonl"));
  std::ofstream(at("data.jsonl")) << "{\"tokens\":[1,2,3,4]}\n";
  EXPECT_THAT(finish(train("damaged", 6, 1) + Arguments{"--resume", "auto"}, 2),
              HasSubstr("step_6: data digest: got "));
  EXPECT_EQ(lines("damaged/metrics.jsonl"), 6u);
}

TEST_F(Resume, a_full_disk_leaves_the_checkpoint_before_it) {
  finish(train("unbroken", 8, 1) + Arguments{"--save-interval", "1"});
  // A limit on file sizes stops the optimizer's file, the largest one, as a full disk would.
  finish(train("limited", 8, 1) + Arguments{"--stop-after-steps", "2"});
  std::string command = "trap \"\" XFSZ; ulimit -f 40; exec " RINGFOLD_BINARY;
  for (const std::string& argument : train("limited", 8, 1) + Arguments{"--save-interval", "3", "--resume", "auto"}) {
    command += " " + argument;
  }
  EXPECT_EQ(WEXITSTATUS(std::system(("bash -c '" + command + "' > " + at("log") + " 2>&1").c_str())), 4);
  const std::string said = read_file(at("log"));
  EXPECT_THAT(said, HasSubstr("[checkpoint] the checkpoint of step 3 was not written: "));
  EXPECT_THAT(said, HasSubstr("step_3.tmp/optimizer.safetensors: write: got File too large"));
  EXPECT_THAT(said, HasSubstr("the newest complete one is " + at("limited/checkpoints/step_2") + ". Hint: free the"));
  EXPECT_FALSE(fs::exists(at("limited/checkpoints/step_3.tmp")));
  EXPECT_THAT(finish(train("limited", 8, 1) + Arguments{"--resume", "auto"}), HasSubstr("resumed after step 2"));
  expect_same_bits("limited", "unbroken", 8);

  fs::create_directories(at("disk"));
  if (mount("tmpfs", at("disk").c_str(), "tmpfs", 0, "size=320k") != 0) {
    GTEST_SKIP() << "no right to mount a small disk; the limit on file sizes was tested";
  }
  for (const bool async : {false, true}) {
    const std::string out = async ? "disk/async" : "disk/sync";
    const Arguments save =
        async ? Arguments{"--save-interval", "1", "--async-save"} : Arguments{"--save-interval", "1"};
    const std::string full = finish(train(out, 8, 1) + save + Arguments{"--resume", "auto"}, 4);
    EXPECT_THAT(full, HasSubstr("was not written: "));
    EXPECT_THAT(full, HasSubstr("got No space left on device, expected success; the newest complete one is " +
                                at(out + "/checkpoints/step_")));
    EXPECT_EQ(full.find("ringfold: error:"), full.rfind("ringfold: error:")) << full;
    EXPECT_EQ(mount("", at("disk").c_str(), "", MS_REMOUNT, "size=16m"), 0);
    EXPECT_THAT(finish(train(out, 8, 1) + save + Arguments{"--resume", "auto"}), HasSubstr("resumed after step "));
    expect_same_bits(out, "unbroken", 8);
    fs::remove_all(at(out));
    EXPECT_EQ(mount("", at("disk").c_str(), "", MS_REMOUNT, "size=320k"), 0);
  }
}

TEST_F(Resume, sigterm_saves_after_a_whole_step) {
  const int steps = 400;
  Job job(train("out", steps), at("log"));
  while (!job.ended() && lines("out/metrics.jsonl") < 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << read_file(at("log"));
  const size_t made = lines("out/metrics.jsonl");
  EXPECT_LT(made, static_cast<size_t>(steps));
  EXPECT_TRUE(fs::exists(at("out/checkpoints/step_" + std::to_string(made) + "/COMPLETE"))) << read_file(at("log"));
  EXPECT_THAT(read_file(at("log")), HasSubstr("stopped by signal 15 after a whole step"));
  const std::string more = std::to_string(made + 2);
  EXPECT_THAT(finish(train("out", steps) + Arguments{"--resume", "auto", "--stop-after-steps", more}),
              HasSubstr("resumed after step " + std::to_string(made)));
  EXPECT_EQ(lines("out/metrics.jsonl"), made + 2);

  // Without checkpoints there is nothing to go on from.
  finish(train("bare", 2) + Arguments{"--no-save"});
  EXPECT_FALSE(fs::exists(at("bare/checkpoints")));
  EXPECT_THAT(finish(train("bare", 2) + Arguments{"--resume", "auto"}, 2),
              HasSubstr("holds a finished run without checkpoints"));
}

}  // namespace
}  // namespace ringfold
