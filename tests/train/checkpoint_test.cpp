// Checkpoints as files and as the state of a run; the real binary is stopped and resumed in tests/runs.
#include "ringfold/train/checkpoint.h"

#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ringfold/mesh/single_rank.h"
#include "ringfold/train/checkpoint_saver.h"
#include "ringfold/train/resume.h"
#include "train/train_fixture.h"

namespace ringfold {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model in training whose gradients are made up.
struct Training {
  explicit Training(at::ScalarType dtype, uint64_t seed = 5)
      : model(tiny_config(), dtype, seed), flat(model.parameters()), optimizer(flat, {0.9, 0.95, 1e-8, 0.1}) {}

  void step() {
    ++made;
    const at::Tensor ramp = at::arange(flat.gradients().numel(), flat.gradients().options());
    flat.gradients().copy_(at::sin(ramp * 0.37 + static_cast<double>(made)));
    optimizer.step(1e-3, 0.5);
  }
  Checkpoint capture(bool copied = false) {
    CheckpointState state;
    state.step = made;
    state.world_size = 2;
    state.packs_by_size = {{1, 7}, {4, 2}};
    state.facts = {{"--lr", "0.001"}, {"model config", "{\"a\": \"b\"}"}};
    return capture_checkpoint(*alone.collectives, state, model, flat, optimizer, rl, copied);
  }

  void restore(const Checkpoint& checkpoint, const std::string& path) {
    require_same_tensors(checkpoint, path, flat);
    restore_tensors(*alone.collectives, checkpoint, flat, optimizer);
  }

  LaneComms alone = single_rank_comms();
  DenseModel model;
  FlatParameters flat;
  AdamW optimizer;
  RlFields rl;
  int64_t made = 0;
};

class Checkpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    log::set_level(log::Level::kOff);
    run_ = ::testing::TempDir() + "ringfold_checkpoint_" + std::to_string(getpid());
    fs::remove_all(run_);
    folder_ = checkpoints_folder(run_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(run_); }

  std::string at(int64_t step, const std::string& file = "") const {
    return folder_ + "/step_" + std::to_string(step) + (file.empty() ? "" : "/" + file);
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> all;
    for (const CheckpointFolder& found : list_checkpoints(folder_)) all.push_back(found.step);
    return all;
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  RunSettings settings(const std::string& resume) const {
    RunSettings settings;
    settings.output_dir = run_;
    settings.resume = resume;
    return settings;
  }
  template <typename E>
  static std::string message_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const E& error) {
      return error.what();
    }
    return "no such error";
  }

  std::string run_, folder_;
};

TEST_F(Checkpoints, a_restored_run_goes_on_bit_by_bit) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    Training unbroken(dtype), resumed(dtype, 99);
    unbroken.rl.old_log_probs = {{-0.1, -1e-300}, {}, {-3.25}};
    unbroken.rl.ref_log_probs = {{-0.2, -7}, {}, {-1e-9}};
    for (int i = 0; i < 3; ++i) unbroken.step();
    const std::string path = write_checkpoint(folder_, unbroken.capture());
    const at::Tensor weights_then = unbroken.model.head_weight().detach().clone();
    const Checkpoint read = read_checkpoint(path);
    EXPECT_EQ(read.state.step, 3);
    EXPECT_EQ(read.state.optimizer_steps, 3);
    EXPECT_EQ(read.state.world_size, 2);
    EXPECT_EQ(read.state.packs_by_size, (std::map<int, int64_t>{{1, 7}, {4, 2}}));
    EXPECT_EQ(read.state.facts, unbroken.capture().state.facts);
    EXPECT_EQ(rl_fields_of(read.samples).old_log_probs, unbroken.rl.old_log_probs);
    EXPECT_EQ(rl_fields_of(read.samples).ref_log_probs, unbroken.rl.ref_log_probs);
    resumed.restore(read, path);
    resumed.made = 3;
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(at::equal(unbroken.flat.values(), resumed.flat.values())) << dtype;
      EXPECT_TRUE(at::equal(unbroken.flat.masters(), resumed.flat.masters())) << dtype;
      unbroken.step();
      resumed.step();
    }
    EXPECT_TRUE(at::equal(unbroken.flat.masters(), resumed.flat.masters())) << dtype;
    // The weights are a Hugging Face folder of their own.
    const DenseModel exported(tiny_config(), dtype, path + "/hf");
    EXPECT_TRUE(at::equal(exported.head_weight(), weights_then));
    fs::remove_all(path);
  }
}

TEST_F(Checkpoints, copies_do_not_follow_the_run) {
  Training run(at::kFloat);
  run.step();
  const at::Tensor before = run.flat.values().clone();
  const Checkpoint copied = run.capture(true);
  run.step();
  Training other(at::kFloat, 99);
  other.restore(copied, "copy");
  EXPECT_TRUE(at::equal(other.flat.values(), before));
}

TEST_F(Checkpoints, another_model_is_refused_with_the_tensors_named) {
  Training run(at::kFloat), wide(at::kDouble);
  EXPECT_THAT(message_of<DataError>([&] { wide.restore(run.capture(), "PATH"); }),
              AllOf(HasSubstr("[checkpoint] PATH: got "), HasSubstr("tensors that are not the model's"),
                    HasSubstr("model.embed_tokens.weight Float [61, 16] instead of Double [61, 16]")));
}

TEST_F(Checkpoints, a_write_that_fails_anywhere_leaves_the_one_before) {
  Training run(at::kFloat);
  run.step();
  for (const std::string stage : {"weights", "files", "complete"}) {
    bool armed = false;
    CheckpointSaver saver({folder_, 0, false, [&](std::string_view reached) {
                             if (armed && reached == stage) throw RunError("[disk] no space. Hint: none");
                           }});
    fs::remove_all(at(1));
    run.made = 1;
    saver.save(run.capture());
    ASSERT_FALSE(saver.failure());
    armed = true;
    run.made = 2;
    saver.save(run.capture());
    ASSERT_TRUE(saver.failure()) << stage;
    EXPECT_EQ(saver.failure()->what(),
              "[checkpoint] the checkpoint of step 2 was not written: [disk] no space; the "
              "newest complete one is " +
                  at(1) + ". Hint: free the disk, then --resume auto");
    EXPECT_THAT(entries(), ElementsAre("step_1")) << stage;
    verify_checkpoint(at(1));
  }
  fs::remove_all(at(1));
  CheckpointSaver saver({folder_, 0, false, [](std::string_view) { throw RunError("no"); }});
  saver.save(run.capture());
  EXPECT_THAT(saver.failure()->what(), HasSubstr("was not written: no; there is no earlier one."));
}

TEST_F(Checkpoints, a_killed_writer_is_tidied_up_and_never_read) {
  Training run(at::kFloat);
  run.made = 4;
  write_checkpoint(folder_, run.capture());
  fs::copy(at(4), folder_ + "/step_8.tmp", fs::copy_options::recursive);
  EXPECT_THAT(steps(), ElementsAre(4));
  CheckpointSaver saver({folder_, 0, false, nullptr});
  EXPECT_THAT(entries(), ElementsAre("step_4"));
}

TEST_F(Checkpoints, the_newest_are_kept) {
  Training run(at::kFloat);
  CheckpointSaver saver({folder_, 2, false, nullptr});
  for (run.made = 8; run.made <= 11; ++run.made) saver.save(run.capture());  // 8, 9, 10, 11: not in order of text
  EXPECT_FALSE(saver.failure());
  EXPECT_THAT(entries(), ElementsAre("step_10", "step_11"));
  // One without its mark is no checkpoint to keep.
  fs::remove(at(11, kCompleteMark));
  run.made = 12;
  saver.save(run.capture());
  EXPECT_THAT(steps(), ElementsAre(12, 11, 10));
}

TEST_F(Checkpoints, later_ones_are_set_aside) {
  Training run(at::kFloat);
  for (run.made = 1; run.made <= 3; ++run.made) write_checkpoint(folder_, run.capture());
  EXPECT_THAT(set_aside_later_checkpoints(folder_, 1), ElementsAre(3, 2));
  EXPECT_THAT(entries(), ElementsAre("set_aside_step_2", "set_aside_step_3", "step_1"));
  EXPECT_THAT(steps(), ElementsAre(1));
}

TEST_F(Checkpoints, damage_is_named_by_file) {
  Training run(at::kFloat);
  run.made = 2;
  run.rl.old_log_probs = {{-1.0}};
  for (const std::string file : {"hf/model.safetensors", "hf/config.json", "optimizer.safetensors",
                                 "samples.safetensors", "state.json", kCompleteMark}) {
    write_checkpoint(folder_, run.capture());
    const std::string path = at(2, file);
    const auto damage = [&] { return message_of<DataError>([&] { read_checkpoint(at(2)); }); };
    if (file != kCompleteMark) {
      std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(fs::file_size(path) / 2);
      const char byte = static_cast<char>(bytes.get());
      bytes.seekp(fs::file_size(path) / 2);
      bytes.put(static_cast<char>(byte ^ 4));
      bytes.close();
      EXPECT_THAT(damage(), AllOf(HasSubstr("[checkpoint] " + path + ": checksum (CRC-32): got "),
                                  HasSubstr("the checkpoint is damaged")));
    }
    fs::resize_file(path, fs::file_size(path) - 10);  // K3
    EXPECT_THAT(damage(), HasSubstr("[checkpoint] " + path + ": "));
    fs::remove(path);
    EXPECT_THAT(damage(), HasSubstr("[checkpoint] " + path + ": "));
    fs::remove_all(at(2));
  }
}

TEST_F(Checkpoints, a_state_of_another_version_is_refused) {
  EXPECT_THAT(message_of<DataError>([] { parse_checkpoint_state("{\"schema\":2}", "state.json"); }),
              HasSubstr("state.json: schema: got 2, expected 1"));
  for (const std::string text : {"", "[]", "{\"schema\":\"1\"}", "{\"schema\":1}"}) {
    EXPECT_THAT(message_of<DataError>([&] { parse_checkpoint_state(text, "state.json"); }),
                HasSubstr("state.json: state: got something else"));
  }
}

TEST_F(Checkpoints, one_write_in_the_background_at_a_time) {
  Training run(at::kFloat);
  std::atomic<int> writing = 0, most = 0;
  std::atomic<bool> go = false;
  {
    CheckpointSaver saver({folder_, 0, true, [&](std::string_view stage) {
                             if (stage == "weights") most = std::max<int>(most, ++writing);
                             while (!go) std::this_thread::yield();
                             if (stage == "rename") --writing;
                           }});
    run.made = 1;
    saver.save(run.capture(true));
    EXPECT_FALSE(saver.failure());
    EXPECT_TRUE(steps().empty());  // the run goes on meanwhile
    go = true;
    for (run.made = 2; run.made <= 4; ++run.made) saver.save(run.capture(true));
  }
  EXPECT_EQ(most, 1);
  EXPECT_THAT(steps(), ElementsAre(4, 3, 2, 1));
  CheckpointSaver failing({folder_, 0, true, [](std::string_view) { throw RunError("no"); }});
  failing.save(run.capture(true));
  failing.finish();
  EXPECT_THAT(failing.failure()->what(), HasSubstr("the newest complete one is " + at(4)));
}

TEST_F(Checkpoints, auto_takes_the_newest_whole_one) {
  EXPECT_FALSE(find_resume_point(settings("auto")));  // nothing there: a new run
  Training run(at::kFloat);
  for (run.made = 9; run.made <= 11; ++run.made) write_checkpoint(folder_, run.capture());
  EXPECT_EQ(find_resume_point(settings("auto"))->path, at(11));
  EXPECT_EQ(find_resume_point(settings(run_))->path, at(11));
  EXPECT_EQ(find_resume_point(settings(at(9) + "/"))->checkpoint.state.step, 9);
  EXPECT_THAT(message_of<UsageError>([&] { find_resume_point(settings("never")); }),
              HasSubstr("holds a run already. Hint: --resume auto goes on with it"));

  fs::remove(at(11, kCompleteMark));
  fs::resize_file(at(10, "hf/model.safetensors"), fs::file_size(at(10, "hf/model.safetensors")) - 10);
  ::testing::internal::CaptureStderr();
  log::set_level(log::Level::kWarning);
  EXPECT_EQ(find_resume_point(settings("auto"))->path, at(9));
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, AllOf(HasSubstr(at(11, kCompleteMark) + ": got no such file"),
                              HasSubstr("step 11 is skipped, the checkpoint before it is tried"),
                              HasSubstr(at(10, "hf/model.safetensors") + ": size: got ")));
  log::set_level(log::Level::kOff);
  // Asked for by name, it is refused.
  EXPECT_THAT(message_of<DataError>([&] { find_resume_point(settings(at(11))); }), HasSubstr(at(11, kCompleteMark)));
  fs::remove(at(9, "state.json"));
  EXPECT_THAT(message_of<DataError>([&] { find_resume_point(settings("auto")); }),
              AllOf(HasSubstr(at(11, kCompleteMark)), HasSubstr("of 3 checkpoints in " + folder_ + " none is whole")));
}

TEST_F(Checkpoints, what_is_no_checkpoint_is_refused) {
  EXPECT_THAT(message_of<UsageError>([&] { find_resume_point(settings(run_)); }),
              HasSubstr("--resume " + run_ + ": got a folder without a checkpoint"));
  EXPECT_THAT(message_of<UsageError>([&] { find_resume_point(settings("/nowhere")); }),
              HasSubstr("--resume /nowhere: got a folder without a checkpoint"));
  // Records without a checkpoint: a run that was stopped early starts again, a finished one is somebody's result.
  std::ofstream(run_ + "/metrics.jsonl") << "{\"step\":1}\n";
  EXPECT_FALSE(find_resume_point(settings("auto")));
  fs::create_directories(run_ + "/hf");
  EXPECT_THAT(message_of<UsageError>([&] { find_resume_point(settings("auto")); }),
              HasSubstr("holds a finished run without checkpoints"));
  // Another run's checkpoint must not mix its records with those that are here.
  const std::string other = run_ + "/other/checkpoints";
  Training run(at::kFloat);
  const std::string path = write_checkpoint(other, run.capture());
  EXPECT_THAT(message_of<UsageError>([&] { find_resume_point(settings(path)); }), HasSubstr("holds a run already"));
}

using Facts = std::vector<std::pair<std::string, std::string>>;

// resume_run on two ranks with weights of different seeds; `point` is rank 0's. The texts of the ranks' errors.
std::vector<std::string> resume_on_two(const ResumePoint& point, const Facts& facts, at::Tensor* values) {
  std::vector<std::string> errors(2);
  std::vector<at::Tensor> ended(2), moments(2);
  run_ranks(2, [&](RankContext& context) {
    const auto self = static_cast<size_t>(context.rank.value());
    Session session;
    session.env.rank = context.rank;
    session.env.world_size = 2;
    session.reductions = &context.collectives;
    Training run(at::kFloat, 50 + self);
    try {
      const Resumed resumed =
          resume_run(session, self == 0 ? std::optional(point) : std::nullopt, facts, run.flat, run.optimizer);
      EXPECT_EQ(resumed.step, point.checkpoint.state.step);
      EXPECT_EQ(resumed.rl.old_log_probs, rl_fields_of(point.checkpoint.samples).old_log_probs);
      EXPECT_EQ(resumed.rl.ref_log_probs, rl_fields_of(point.checkpoint.samples).ref_log_probs);
      EXPECT_EQ(run.optimizer.steps(), point.checkpoint.state.optimizer_steps);
    } catch (const Error& error) {
      errors[self] = error.what();
    }
    ended[self] = run.flat.values().clone();
    moments[self] = run.optimizer.second_moment().clone();
  });
  if (errors[0].empty()) {
    EXPECT_TRUE(at::equal(ended[0], ended[1]));
    EXPECT_TRUE(at::equal(moments[0], moments[1]));
  }
  *values = ended[1];
  return errors;
}

TEST_F(Checkpoints, every_rank_gets_the_state_and_a_refusal_is_told_once) {
  Training run(at::kFloat);
  run.rl.old_log_probs = {{-0.5, -0.25}, {-1}};
  run.rl.ref_log_probs = {{-0.75, -0.125}, {-2}};
  run.step();
  ResumePoint point{"PATH", run.capture()};
  const std::string config = R"({"hidden_size": 16, "dtype": "float32"})";
  point.checkpoint.state.facts = {
      {"data digest", "abc"}, {"model config", config}, {"--lr", "0.1"}, {"--cp-policy", "static"}};
  at::Tensor values;
  const Facts same = {{"data digest", "abc"},
                      {"model config", R"({"torch_dtype":"bfloat16","hidden_size":16})"},
                      {"--lr", "0.2"},
                      {"--cp-policy", "uniform"},
                      {"--new-setting", "1"}};
  ::testing::internal::CaptureStderr();
  log::set_level(log::Level::kWarning);
  EXPECT_THAT(resume_on_two(point, same, &values), ElementsAre("", ""));
  log::set_level(log::Level::kOff);
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, HasSubstr("settings changed since the checkpoint: --lr 0.2 (was 0.1)"));
  EXPECT_THAT(warnings, ::testing::Not(HasSubstr("--cp-policy")));
  EXPECT_TRUE(at::equal(values, run.flat.values()));

  const auto data = resume_on_two(point, {{"data digest", "other"}, {"model config", config}}, &values);
  EXPECT_THAT(data[0], HasSubstr("[checkpoint] PATH: data digest: got other, expected abc as in the checkpoint"));
  EXPECT_EQ(data[1], "reported by another rank");
  const auto model = resume_on_two(point, {{"data digest", "abc"}, {"model config", "{\"hidden_size\":8}"}}, &values);
  EXPECT_THAT(model[0], HasSubstr("model config: got {\"hidden_size\":8}"));
  point.checkpoint.weights.pop_back();
  EXPECT_THAT(resume_on_two(point, same, &values)[0], HasSubstr("missing"));
}

}  // namespace
}  // namespace ringfold
