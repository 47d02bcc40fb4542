// The small tokenizers of tests/data/tokenizers (make_tokenizers.py).
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ringfold/data/tokenizer.h"

namespace ringfold {

inline std::string tokenizer_dir(const std::string& name) {
  return RINGFOLD_SOURCE_DIR "/tests/data/tokenizers/" + name;
}

inline std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<nlohmann::json> json_lines(const std::string& file) {
  std::vector<nlohmann::json> records;
  std::ifstream in(file);
  EXPECT_TRUE(in) << file;
  for (std::string line; std::getline(in, line);) records.push_back(nlohmann::json::parse(line));
  return records;
}

// Texts with known ids: encodes each, and decodes what comes out.
inline void expect_ids(const Tokenizer& tokenizer, const std::vector<nlohmann::json>& records) {
  Tokenizer::Workspace workspace(tokenizer);
  int wrong = 0;
  for (const nlohmann::json& record : records) {
    const auto text = record.at("text").get<std::string>();
    std::vector<int64_t> ids;
    tokenizer.encode(text, workspace, ids);
    if (ids == record.at("ids") && tokenizer.decode(ids) == tokenizer.normalized(text)) continue;
    if (++wrong <= 5) {
      ADD_FAILURE() << record.at("text").dump(-1, ' ', true) << "\n got " << nlohmann::json(ids) << "\nwant "
                    << record.at("ids") << "\ndecoded " << nlohmann::json(tokenizer.decode(ids)).dump(-1, ' ', true);
    }
  }
  EXPECT_EQ(wrong, 0) << "of " << records.size();
}

}  // namespace ringfold
