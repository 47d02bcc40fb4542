// A scratch folder a process, and what an action throws, as text.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace ringfold {

// Of this process alone, as tests run side by side; removed when it ends.
inline const std::string& scratch_folder() {
  struct Folder {
    std::string path = std::filesystem::temp_directory_path() / ("ringfold_models_" + std::to_string(::getpid()));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
  };
  static const Folder folder;
  return folder.path;
}

// The message of the E that `action` throws; "nothing thrown" or "another exception" otherwise.
template <typename E, typename Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
  return "nothing thrown";
}

}  // namespace ringfold
