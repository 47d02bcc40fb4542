#include "ringfold/data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unordered_map>

#include "ringfold/base/error.h"
#include "ringfold/base/outside_text.h"
#include "ringfold/data/added_tokens.h"
#include "ringfold/data/nfc.h"
#include "ringfold/data/split_pattern.h"
#include "ringfold/data/tokenizer_spec.h"
#include "ringfold/data/utf8.h"

namespace ringfold {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;

// GPT-2 writes each byte as a printable character: itself where it is one, else U+0100 and following, in order.
class ByteCharacters {
 public:
  ByteCharacters() {
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      characters_[byte] = printable ? byte : next++;
      bytes_.emplace(characters_[byte], static_cast<char>(byte));
    }
  }
  char32_t character(unsigned byte) const { return characters_[byte]; }
  // The bytes that a token stands for; nothing when it holds other characters.
  std::optional<std::string> bytes_of(std::string_view token) const {
    std::string bytes;
    for (size_t pos = 0; pos < token.size();) {
      const auto found = bytes_.find(next_code_point(token, pos));
      if (found == bytes_.end()) return std::nullopt;
      bytes += found->second;
    }
    return bytes;
  }

 private:
  std::array<char32_t, 256> characters_{};
  std::unordered_map<char32_t, char> bytes_;
};

const ByteCharacters& byte_characters() {
  static const ByteCharacters table;
  return table;
}

using Vocabulary = std::unordered_map<std::string, TokenId>;

// `what` and `index` say what needs the token.
TokenId look_up(const TokenizerSpec& spec, const Vocabulary& ids, const std::string& token, const char* what,
                size_t index) {
  const auto found = ids.find(token);
  if (found == ids.end()) {
    throw DataError(
        fmt::format("{}: {} {}: token \"{}\" is not in the vocabulary. Hint: are the files of one tokenizer?",
                    spec.file, what, index, printable(token)));
  }
  return found->second;
}

Bpe make_bpe(const TokenizerSpec& spec, const Vocabulary& ids) {
  std::array<TokenId, 256> byte_ids{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string token;
    append_utf8(byte_characters().character(byte), token);
    byte_ids[byte] = look_up(spec, ids, token, "byte", byte);
  }
  std::vector<Bpe::Merge> merges;
  merges.reserve(spec.merges.size());
  for (const auto& [left, right] : spec.merges) {
    const auto id = [&](const std::string& token) { return look_up(spec, ids, token, "merge", merges.size()); };
    merges.push_back({id(left), id(right), id(left + right)});
  }
  std::unordered_map<std::string, TokenId> whole_words;
  for (const auto& [token, id] : spec.vocab) {
    if (!spec.ignore_merges) break;
    if (auto bytes = byte_characters().bytes_of(token)) whole_words.emplace(*std::move(bytes), id);
  }
  return {byte_ids, merges, std::move(whole_words)};
}

std::string read_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  const std::streamoff size = in.tellg();
  if (in && static_cast<size_t>(size) > kMaxFileBytes) {
    throw DataError(fmt::format("[tokenizer] {}: got {} bytes, expected at most {}", file, size, kMaxFileBytes));
  }
  std::string text(in ? static_cast<size_t>(size) : 0, '\0');
  in.seekg(0);
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size()))) {
    throw DataError(fmt::format("[tokenizer] {}: cannot read. Hint: check the path and its permissions", file));
  }
  return text;
}

}  // namespace

struct Tokenizer::Tables {
  explicit Tables(const TokenizerSpec& spec);
  void add(const AddedToken& token, const std::string& file);

  // The steps of encode, each on what the one before cuts out.
  void encode(std::string_view text, Workspace::State& state, std::vector<int64_t>& out) const;
  void encode_segment(std::string_view text, Workspace::State& state, std::vector<int64_t>& out) const;
  void split(std::string_view text, size_t level, Workspace::State& state, std::vector<int64_t>& out) const;

  Vocabulary ids;
  std::unordered_map<TokenId, std::string> bytes;
  Bpe bpe;
  std::vector<SplitPattern> patterns;
  bool nfc;
  AddedTokens raw_added, normalized_added;  // searched for before and after normalization
  AddedTokens special;
  TokenId largest_id = 0;

 private:
  static Vocabulary unique_ids(const TokenizerSpec& spec);
};

Vocabulary Tokenizer::Tables::unique_ids(const TokenizerSpec& spec) {
  Vocabulary ids;
  std::unordered_map<TokenId, const std::string*> owners;
  ids.reserve(spec.vocab.size() + spec.added.size());
  owners.reserve(spec.vocab.size());
  for (const auto& [token, id] : spec.vocab) {
    const auto [owner, fresh] = owners.emplace(id, &token);
    if (!fresh) {
      throw DataError(fmt::format("{}: id {} twice: \"{}\" and \"{}\"", spec.file, id, printable(*owner->second),
                                  printable(token)));
    }
    ids.emplace(token, id);
  }
  return ids;
}

Tokenizer::Tables::Tables(const TokenizerSpec& spec) : ids(unique_ids(spec)), bpe(make_bpe(spec, ids)), nfc(spec.nfc) {
  bytes.reserve(spec.vocab.size() + spec.added.size());
  for (const auto& [token, id] : spec.vocab) {
    bytes.emplace(id, byte_characters().bytes_of(token).value_or(token));
    largest_id = std::max(largest_id, id);
  }
  for (const AddedToken& token : spec.added) add(token, spec.file);
  for (const std::string& pattern : spec.patterns) patterns.emplace_back(pattern, spec.file + ": pre_tokenizer");
}

void Tokenizer::Tables::add(const AddedToken& token, const std::string& file) {
  const std::string where = fmt::format("{}: added token \"{}\"", file, printable(token.content));
  if (token.content.empty()) throw DataError(fmt::format("{}: id {}: expected a text", where, token.id));
  const auto [known, is_new] = ids.emplace(token.content, token.id);
  if (!is_new && known->second != token.id) {
    throw DataError(fmt::format("{}: got id {}, but it has id {} already. Hint: are the files of one tokenizer?", where,
                                token.id, known->second));
  }
  const bool new_id = bytes.emplace(token.id, token.content).second;
  if (is_new && !new_id) {
    throw DataError(
        fmt::format("{}: got id {}, which is the id of \"{}\" already", where, token.id, printable(bytes[token.id])));
  }
  largest_id = std::max(largest_id, token.id);
  std::string buffer;
  if (token.normalized) {
    normalized_added.add(nfc ? to_nfc(token.content, buffer) : std::string_view(token.content), token.id);
  } else {
    raw_added.add(token.content, token.id);
  }
  if (token.special) special.add(token.content, token.id);
}

struct Tokenizer::Workspace::State {
  const Tables* owner;  // whose words are cached
  Bpe::Scratch bpe;
  SplitPattern::Scratch split;
  std::string normalized;
};

Tokenizer::Workspace::Workspace(const Tokenizer& tokenizer)
    : state_(
          std::make_unique<State>(State{.owner = tokenizer.tables_.get(), .bpe = {}, .split = {}, .normalized = {}})) {}
Tokenizer::Workspace::~Workspace() = default;
Tokenizer::Workspace::Workspace(Workspace&&) noexcept = default;
Tokenizer::Workspace& Tokenizer::Workspace::operator=(Workspace&&) noexcept = default;

void Tokenizer::Tables::encode(std::string_view text, Workspace::State& state, std::vector<int64_t>& out) const {
  if (const auto bad = invalid_utf8_offset(text)) {
    throw DataError(fmt::format("[tokenizer] invalid UTF-8 at byte {}", *bad));
  }
  for (size_t begin = 0; begin < text.size();) {
    const AddedTokens::Match match = raw_added.find(text, begin);
    encode_segment(text.substr(begin, match.begin - begin), state, out);
    if (match.end > match.begin) out.push_back(match.id);
    begin = match.end;
  }
}

void Tokenizer::Tables::encode_segment(std::string_view text, Workspace::State& state,
                                       std::vector<int64_t>& out) const {
  if (nfc) text = to_nfc(text, state.normalized);
  for (size_t begin = 0; begin < text.size();) {
    const AddedTokens::Match match = normalized_added.find(text, begin);
    split(text.substr(begin, match.begin - begin), 0, state, out);
    if (match.end > match.begin) out.push_back(match.id);
    begin = match.end;
  }
}

void Tokenizer::Tables::split(std::string_view text, size_t level, Workspace::State& state,
                              std::vector<int64_t>& out) const {
  if (text.empty()) return;
  if (level == patterns.size()) {
    bpe.encode(text, state.bpe, out);
    return;
  }
  size_t done = 0;
  while (const auto match = patterns[level].find(text, done, state.split)) {
    split(text.substr(done, match->begin - done), level + 1, state, out);
    split(text.substr(match->begin, match->end - match->begin), level + 1, state, out);
    done = match->end;
  }
  split(text.substr(done), level + 1, state, out);
}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, const std::string& file) {
  return Tokenizer(std::make_shared<const Tables>(parse_tokenizer_json(tokenizer_json, file)));
}

Tokenizer Tokenizer::from_vocab(std::string_view vocab_json, std::string_view merges_txt,
                                std::string_view tokenizer_config_json, const std::string& dir) {
  return Tokenizer(
      std::make_shared<const Tables>(parse_vocab_and_merges(vocab_json, merges_txt, tokenizer_config_json, dir)));
}

Tokenizer Tokenizer::from_dir(const std::string& dir) {
  const auto has = [&dir](const char* name) {
    return std::filesystem::is_regular_file(std::filesystem::path(dir) / name);
  };
  if (has("tokenizer.json")) return from_json(read_file(dir + "/tokenizer.json"), dir + "/tokenizer.json");
  if (has("vocab.json") && has("merges.txt")) {
    return from_vocab(read_file(dir + "/vocab.json"), read_file(dir + "/merges.txt"),
                      has("tokenizer_config.json") ? read_file(dir + "/tokenizer_config.json") : "", dir);
  }
  std::string what = "expected tokenizer.json, or vocab.json and merges.txt";
  if (!std::filesystem::is_directory(dir)) {
    what = "not a folder, " + what;
  } else if (has("vocab.json") || has("merges.txt")) {
    what = fmt::format("{} is missing, {}", has("vocab.json") ? "merges.txt" : "vocab.json", what);
  } else if (has("tokenizer.model")) {
    what = "got tokenizer.model (SentencePiece, which is not read), " + what;
  } else {
    what = "no tokenizer in it, " + what;
  }
  throw DataError(
      fmt::format("[tokenizer] {}: {}. Hint: --tokenizer DIR is the model's Hugging Face folder", dir, what));
}

void Tokenizer::encode(std::string_view text, Workspace& workspace, std::vector<int64_t>& ids) const {
  RINGFOLD_ASSERT(workspace.state_->owner == tables_.get(), "a workspace of another tokenizer");
  tables_->encode(text, *workspace.state_, ids);
}

std::vector<int64_t> Tokenizer::encode(std::string_view text) const {
  Workspace workspace(*this);
  std::vector<int64_t> ids;
  encode(text, workspace, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int64_t> ids) const {
  std::string text;
  for (const int64_t id : ids) {
    const auto token =
        id >= 0 && id <= tables_->largest_id ? tables_->bytes.find(static_cast<TokenId>(id)) : tables_->bytes.end();
    if (token == tables_->bytes.end()) {
      throw DataError(fmt::format("[tokenizer] id {}: no token has it, expected 0 to {}", id, tables_->largest_id));
    }
    text += token->second;
  }
  return text;
}

std::string Tokenizer::normalized(std::string_view text) const {
  if (!tables_->nfc) return std::string(text);
  std::string out, buffer;
  for (size_t begin = 0; begin < text.size();) {
    const AddedTokens::Match match = tables_->raw_added.find(text, begin);
    out += to_nfc(text.substr(begin, match.begin - begin), buffer);
    out += text.substr(match.begin, match.end - match.begin);
    begin = match.end;
  }
  return out;
}

std::optional<int64_t> Tokenizer::id_of(std::string_view token) const {
  const auto found = tables_->ids.find(std::string(token));
  if (found == tables_->ids.end()) return std::nullopt;
  return found->second;
}

std::string_view Tokenizer::special_in(std::string_view text) const {
  const AddedTokens::Match match = tables_->special.find(text, 0);
  return text.substr(match.begin, match.end - match.begin);
}

int64_t Tokenizer::vocab_size() const {
  return int64_t{tables_->largest_id} + 1;
}

}  // namespace ringfold
