// A file that lives as long as the object; plain or gzip.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace ringfold {

class TempFile {
 public:
  explicit TempFile(const std::string& text, const std::string& suffix = ".jsonl", bool gzip = false) {
    static int count = 0;
    path_ = ::testing::TempDir() + "ringfold_data_" + std::to_string(getpid()) + "_" + std::to_string(count++) + suffix;
    if (gzip) {
      gzFile file = gzopen(path_.c_str(), "wb");
      gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
      gzclose(file);
    } else {
      std::ofstream(path_, std::ios::binary) << text;
    }
  }
  ~TempFile() { std::remove(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  const std::string& path() const { return path_; }
  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

}  // namespace ringfold
