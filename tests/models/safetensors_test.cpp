#include "ringfold/models/common/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/test_tools.h"
#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Safetensors : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    file_ = folder_ + "/model.safetensors";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write_bytes(const std::string& bytes) const { std::ofstream(file_, std::ios::binary) << bytes; }
  // A file of this header and this many bytes of data.
  std::string broken(const std::string& header, size_t data_bytes) const {
    return broken(header, data_bytes, header.size());
  }
  std::string broken(const std::string& header, size_t data_bytes, uint64_t claimed_header_bytes) const {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &claimed_header_bytes, 8);
    write_bytes(bytes + header + std::string(data_bytes, '\0'));
    return message_of<DataError>([&] { read_safetensors(file_); });
  }

  std::string folder_, file_;
};

auto names(const std::string& text) {
  return AllOf(HasSubstr("[safetensors]"), HasSubstr("model.safetensors"), HasSubstr(text), HasSubstr("Hint:"));
}

constexpr const char* kOne = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST_F(Safetensors, every_type_and_shape_reads_back) {
  std::vector<NamedTensor> tensors;
  int64_t i = 0;
  for (const at::ScalarType type : {at::kBool, at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                                    at::kShort, at::kChar, at::kByte}) {
    tensors.push_back({"t" + std::to_string(i++), at::arange(6).remainder(2).to(type).view({2, 3})});
  }
  tensors.push_back({"scalar", at::scalar_tensor(2.5)});
  tensors.push_back({"empty", at::empty({0, 4})});
  tensors.push_back({"turned", at::arange(6, at::kFloat).view({2, 3}).t()});
  tensors.push_back({"quote \" and \\ and \xC3\xA9", at::ones({1})});
  write_safetensors(file_, tensors);
  const auto read = read_safetensors(file_);
  ASSERT_EQ(read.size(), tensors.size());
  for (const NamedTensor& tensor : tensors) {
    EXPECT_EQ(read.at(tensor.name).scalar_type(), tensor.value.scalar_type()) << tensor.name;
    EXPECT_TRUE(at::equal(read.at(tensor.name), tensor.value)) << tensor.name;
  }
}

TEST_F(Safetensors, a_file_without_tensors_is_legal) {
  EXPECT_EQ(broken("{}", 0), "nothing thrown");
  EXPECT_EQ(broken(kOne, 8), "nothing thrown");
}

TEST_F(Safetensors, a_header_length_that_does_not_fit_is_refused) {
  write_bytes("1234567");
  EXPECT_THAT(message_of<DataError>([&] { read_safetensors(file_); }), names("file size: got 7 bytes"));
  EXPECT_THAT(broken(kOne, 8, 1000), names("header length: got 1000 bytes"));
  EXPECT_THAT(broken(kOne, 8, UINT64_MAX), names("header length: got 18446744073709551615 bytes"));
  EXPECT_THAT(broken(kOne, 8, UINT64_MAX - 7), names("header length"));
}

TEST_F(Safetensors, a_header_that_is_not_an_object_is_refused) {
  EXPECT_THAT(broken("{\"a\":", 0), names("header: got"));
  EXPECT_THAT(broken("[1]", 0), names("header: got array"));
  EXPECT_THAT(broken("\xff\xfe", 0), names("header: got"));
  EXPECT_THAT(broken(std::string(100000, '['), 0), names("header: got"));
  EXPECT_THAT(broken(R"({"__metadata__":{"a":1}})", 0), names("__metadata__"));
}

TEST_F(Safetensors, an_entry_of_the_wrong_form_is_refused) {
  EXPECT_THAT(broken(R"({"a":3})", 0), names("tensor 'a': got 3"));
  EXPECT_THAT(broken(R"({"a":{"dtype":"F32","shape":[2]}})", 8), names("tensor 'a'"));
  EXPECT_THAT(broken(R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", 8),
              names("tensor 'a' dtype: got \"F8_E4M3\""));
  EXPECT_THAT(broken(R"({"a":{"dtype":7,"shape":[8],"data_offsets":[0,8]}})", 8), names("tensor 'a' dtype: got 7"));
  for (const char* shape : {"[-2]", "[1.5]", "[\"2\"]", "2", "[9223372036854775808]"}) {
    EXPECT_THAT(broken(std::string(R"({"a":{"dtype":"F32","shape":)") + shape + R"(,"data_offsets":[0,8]}})", 8),
                names("tensor 'a' shape"));
  }
  for (const char* offsets : {"[0]", "[0,8,8]", "[-1,7]", "[0,\"8\"]", "8"}) {
    EXPECT_THAT(broken(std::string(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)") + offsets + "}}", 8),
                names("tensor 'a' data_offsets"));
  }
}

TEST_F(Safetensors, offsets_outside_the_file_are_refused) {
  EXPECT_THAT(broken(kOne, 7), names("tensor 'a' data_offsets: got [0,8]"));
  EXPECT_THAT(broken(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), names("tensor 'a' data_offsets"));
  EXPECT_THAT(
      broken(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[9223372036854775800,9223372036854775807]}})", 8),
      names("tensor 'a' data_offsets"));
}

TEST_F(Safetensors, sizes_that_disagree_or_overflow_are_refused) {
  EXPECT_THAT(broken(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
              names("expected 12 for F32 of shape [3]"));
  for (const char* shape : {"[4611686018427387904,4]", "[4294967296,4294967296,4294967296]", "[9223372036854775807]",
                            "[0,9223372036854775807,9223372036854775807]"}) {
    EXPECT_THAT(broken(std::string(R"({"a":{"dtype":"F32","shape":)") + shape + R"(,"data_offsets":[0,0]}})", 0),
                names("a shape whose size fits 63 bits"));
  }
}

TEST_F(Safetensors, overlaps_holes_and_trailing_bytes_are_refused) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_THAT(broken("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12),
              names("tensor 'b' data_offsets: got begin 4 (an overlap), expected 8, where 'a' ends"));
  EXPECT_THAT(broken("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})", 20),
              names("tensor 'b' data_offsets: got begin 12 (a hole)"));
  EXPECT_THAT(broken("{" + a + "}", 11), names("3 trailing bytes behind 'a'"));
}

TEST_F(Safetensors, a_name_given_twice_is_refused) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_THAT(broken("{" + a + "," + a + "}", 8), names("tensor 'a': got two entries of that name"));
}

TEST_F(Safetensors, a_bool_other_than_0_and_1_is_refused) {
  const std::string header = R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})";
  const uint64_t size = header.size();
  write_bytes(std::string(reinterpret_cast<const char*>(&size), 8) + header + "\x02");
  EXPECT_THAT(message_of<DataError>([&] { read_safetensors(file_); }), names("neither 0 nor 1"));
}

TEST_F(Safetensors, every_cut_of_a_file_is_refused) {
  write_safetensors(file_, {{"a", at::ones({3})}, {"b", at::ones({2, 2})}});
  std::ifstream in(file_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (size_t length = 0; length < whole.size(); ++length) {
    write_bytes(whole.substr(0, length));
    EXPECT_THROW(read_safetensors(file_), DataError) << length;
  }
}

TEST_F(Safetensors, no_changed_byte_leads_beyond_a_data_error) {
  write_safetensors(file_, {{"a", at::ones({3})}, {"b", at::ones({2, 2}, at::kBool)}});
  std::ifstream in(file_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  int refused = 0;
  for (size_t place = 0; place < whole.size(); ++place) {
    for (const char byte : {'9', '"', '[', '\xff'}) {
      std::string changed = whole;
      changed[place] = byte;
      write_bytes(changed);
      const std::string message = message_of<DataError>([&] { read_safetensors(file_); });
      EXPECT_FALSE(message.starts_with("another exception")) << place << " " << message;
      refused += message != "nothing thrown";
    }
  }
  EXPECT_GT(refused, 250);
}

TEST_F(Safetensors, an_absent_file_and_a_folder_are_named) {
  EXPECT_THAT(message_of<DataError>([&] { read_safetensors(file_); }), names("No such file"));
  EXPECT_THAT(message_of<DataError>([&] { read_safetensors(folder_); }), HasSubstr("not a regular file"));
  EXPECT_THAT(message_of<DataError>([&] { read_safetensors_folder(folder_); }),
              AllOf(HasSubstr(folder_), HasSubstr("without weights")));
}

std::vector<NamedTensor> four() {
  std::vector<NamedTensor> tensors;
  for (const char* name : {"a", "b", "c", "d"}) tensors.push_back({name, at::full({10}, 0.5 * (name[0] - 'a'))});
  return tensors;
}

TEST_F(Safetensors, shards_read_back_through_their_index) {
  write_safetensors(file_, {{"stale", at::ones({1})}});
  write_safetensors_folder(folder_, four(), 100);
  EXPECT_FALSE(std::filesystem::exists(file_)) << "a stale whole file would hide the shards";
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/model-00002-of-00002.safetensors"));
  const auto read = read_safetensors_folder(folder_);
  ASSERT_EQ(read.size(), 4U);
  for (const NamedTensor& tensor : four()) EXPECT_TRUE(at::equal(read.at(tensor.name), tensor.value));
  write_safetensors_folder(folder_, four());
  EXPECT_FALSE(std::filesystem::exists(file_ + ".index.json"));
  EXPECT_EQ(read_safetensors_folder(folder_).size(), 4U);
}

TEST_F(Safetensors, an_index_that_does_not_fit_its_shards_is_refused) {
  write_safetensors_folder(folder_, four(), 100);
  const std::string index = file_ + ".index.json";
  const auto good = nlohmann::json::parse(std::ifstream(index));
  const auto with = [&](const nlohmann::json& json) {
    std::ofstream(index) << json.dump();
    return message_of<DataError>([&] { read_safetensors_folder(folder_); });
  };
  auto json = good;
  json["weight_map"]["e"] = "model-00001-of-00002.safetensors";
  EXPECT_THAT(with(json), names("tensor 'e': got nothing"));
  json = good;
  json["weight_map"].erase("c");
  EXPECT_THAT(with(json), names("tensor 'c': got it in shard model-00002-of-00002.safetensors"));
  json = good;
  json["weight_map"]["a"] = "model-00002-of-00002.safetensors";
  EXPECT_THAT(with(json), names("tensor 'a'"));
  json = good;
  json["weight_map"]["a"] = json["weight_map"]["b"] = "model-00009-of-00002.safetensors";
  EXPECT_THAT(with(json), HasSubstr("model-00009-of-00002.safetensors: open"));
  json = good;
  json["weight_map"]["a"] = "../elsewhere.safetensors";
  EXPECT_THAT(with(json), names("a file name inside the folder"));
  EXPECT_THAT(with(nlohmann::json::object()), names("weight_map: got nothing"));
}

TEST_F(Safetensors, a_write_that_fails_names_file_and_reason_and_leaves_nothing) {
  const std::string absent = folder_ + "/absent/x.safetensors";
  EXPECT_THAT(message_of<RunError>([&] { write_safetensors(absent, four()); }),
              AllOf(HasSubstr(absent), HasSubstr("create"), HasSubstr("No such file")));
  std::filesystem::create_directories(file_ + "/occupied");
  EXPECT_THAT(message_of<RunError>([&] { write_safetensors(file_, four()); }),
              AllOf(HasSubstr(file_), HasSubstr("rename")));
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path(), std::filesystem::path(file_)) << "left behind";
  }
  if (std::filesystem::exists("/dev/full")) {
    std::filesystem::create_symlink("/dev/full", folder_ + "/full.safetensors.tmp-" + std::to_string(::getpid()));
    EXPECT_THAT(message_of<RunError>([&] { write_safetensors(folder_ + "/full.safetensors", four()); }),
                AllOf(HasSubstr("full.safetensors"), HasSubstr("write"), HasSubstr("No space left")));
  }
}

}  // namespace
}  // namespace ringfold
