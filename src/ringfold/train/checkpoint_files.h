// The folders of checkpoints: RUN/checkpoints/step_N. One is written as step_N.tmp, every file flushed to the disk, its
// list of files with sizes and checksums last (COMPLETE, the mark of completion), and only then renamed: whoever reads
// sees a whole checkpoint or none, whenever the writer was stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ringfold {

inline constexpr const char* kCompleteMark = "COMPLETE";

struct CheckpointFolder {
  int64_t step = 0;
  std::string path;
};

// Waits until what was written to the file is on the disk; nothing to do when there is no such file.
void flush_file(const std::string& path);

// Every step_N of the folder, complete or not, newest first; empty when the folder does not exist.
std::vector<CheckpointFolder> list_checkpoints(const std::string& folder);

// DataError that names the file: no mark, a file that is missing, of another size or of another checksum.
void verify_checkpoint(const std::string& path);

// Names of the moments of a write, in order: "files", "complete", "rename". Tests stop a write there.
using CheckpointStage = std::function<void(std::string_view stage)>;

// Makes FOLDER/step_N from what `fill` writes into the folder it is given; returns its path. One of that step
// must not exist. On a failure nothing is left behind, and every other checkpoint is as it was.
std::string write_checkpoint_folder(const std::string& folder, int64_t step,
                                    const std::function<void(const std::string& aside)>& fill,
                                    const CheckpointStage& stage = nullptr);

// Keeps the newest `count` complete ones and removes what is older; 0 keeps all.
void keep_newest_checkpoints(const std::string& folder, int64_t count);

// What killed writers left: step_N.tmp.
void remove_unfinished_checkpoints(const std::string& folder);

// Renames every step_M with M > step to set_aside_step_M, so that "latest" belongs to the run that goes on from `step`.
// Returns the steps, newest first.
std::vector<int64_t> set_aside_later_checkpoints(const std::string& folder, int64_t step);

}  // namespace ringfold
