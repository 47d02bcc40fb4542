#include "ringfold/report/cost_model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include <toml++/toml.h>

#include "ringfold/base/error.h"
#include "ringfold/base/nearest.h"
#include "ringfold/base/outside_text.h"
#include "ringfold/plan/policy_names.h"

namespace ringfold {
namespace {

constexpr int64_t kSchema = 1;
constexpr double kLargest = 1e18;  // of any number in the file
constexpr size_t kMostRates = 64;

// A number of the model: its table and key, where it stands, whether it may be 0, and whether it may be left out.
struct Number {
  const char* table;
  const char* key;
  double CostModel::*member;
  bool may_be_zero;
  bool optional = false;
};

constexpr Number kNumbers[] = {
    {"pack", "fixed_us", &CostModel::fixed_us, true},
    {"pack", "us_per_token", &CostModel::us_per_token, false},
    {"pack", "us_per_vision_token", &CostModel::us_per_vision_token, true},
    {"attention", "flops_per_token2", &CostModel::attention_flops_per_token2, true},
    {"exchange", "kv_bytes_per_token_layer", &CostModel::kv_bytes_per_token_layer, true},
    {"exchange", "query_bytes_per_token_layer", &CostModel::query_bytes_per_token_layer, true, true},
    {"exchange", "hop_latency_us", &CostModel::hop_latency_us, true},
    {"exchange", "node_bytes_per_us", &CostModel::node_bytes_per_us, false},
    {"exchange", "cross_node_hop_latency_us", &CostModel::cross_node_hop_latency_us, true},
    {"exchange", "cross_node_bytes_per_us", &CostModel::cross_node_bytes_per_us, false},
};

struct Count {
  const char* table;
  const char* key;
  int CostModel::*member;
  int least;
  bool optional = false;
};

constexpr Count kCounts[] = {{"exchange", "layers", &CostModel::layers, 0},
                             {"exchange", "node_size", &CostModel::node_size, 1},
                             {"exchange", "kv_heads", &CostModel::kv_heads, 0, true}};

class Reader {
 public:
  Reader(const toml::table& root, const std::string& file) : root_(root), file_(file) {}

  CostModel read() {
    refuse_unknown();
    CostModel model;
    const toml::node& schema = required(root_, "", "schema");
    if (const auto* value = schema.as_integer(); value == nullptr || value->get() != kSchema) {
      fail(schema, "schema", fmt::format("got another version of this file, expected {}", kSchema),
           "write it anew with ringfold bench --calibrate");
    }
    for (const Number& number : kNumbers) {
      if (number.optional && !has(number.table, number.key)) continue;
      const toml::node& node = required(table(number.table), number.table, number.key);
      model.*number.member = value_of(node, full(number.table, number.key), number.may_be_zero);
    }
    for (const Count& count : kCounts) {
      if (count.optional && !has(count.table, count.key)) continue;
      const std::string key = full(count.table, count.key);
      const toml::node& node = required(table(count.table), count.table, count.key);
      const auto* value = node.as_integer();
      if (value == nullptr || value->get() < count.least || value->get() > 1 << 20) {
        fail(node, key, fmt::format("got {}, expected an integer from {} to {}", shown(node), count.least, 1 << 20),
             "see docs/reference/cost_model.md");
      }
      model.*count.member = static_cast<int>(value->get());
    }
    if (!has("exchange", "query_bytes_per_token_layer") && model.layers > 0) {
      // In bf16, from what attention takes: 7 FLOPs per L^2 and element of all query heads, in every layer.
      model.query_bytes_per_token_layer = 2 * model.attention_flops_per_token2 / (7 * model.layers);
    }
    model.rate_length_tokens = rates("rate_length_tokens");
    model.rate_flops_per_us = rates("rate_flops_per_us");
    check_rates(model);
    return model;
  }

 private:
  static std::string full(const std::string& table, const std::string& key) {
    return table.empty() ? key : table + "." + key;
  }

  [[noreturn]] void fail(const toml::node& node, const std::string& key, const std::string& what,
                         const std::string& remedy) const {
    throw DataError(
        fmt::format("[cost_model] {}:{}: {}: {}. Hint: {}", file_, node.source().begin.line, key, what, remedy));
  }

  static std::string shown(const toml::node& node) {
    if (const auto* integer = node.as_integer()) return fmt::format("{}", integer->get());
    if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
    return node.is_string() ? "a string" : node.is_array() ? "an array" : node.is_table() ? "a table" : "another type";
  }

  void refuse_unknown() const {
    std::set<std::string> known = {"schema", "attention.rate_length_tokens", "attention.rate_flops_per_us"};
    std::set<std::string> tables;
    for (const Number& n : kNumbers) known.insert(full(n.table, n.key)), tables.insert(n.table);
    for (const Count& c : kCounts) known.insert(full(c.table, c.key));
    const auto refuse = [&](const toml::node& node, const std::string& key) {
      const std::string near = nearest_name(key, std::vector<std::string>(known.begin(), known.end()));
      fail(node, printable(key), "unknown key",
           near.empty() ? "see docs/reference/cost_model.md" : fmt::format("did you mean {}?", near));
    };
    for (const auto& [key, node] : root_) {
      const std::string name(key.str());
      const auto* inner = node.as_table();
      if (inner == nullptr || !tables.contains(name)) {
        if (!known.contains(name) && !tables.contains(name)) refuse(node, name);
        continue;
      }
      for (const auto& [inner_key, inner_node] : *inner) {
        if (const std::string path = full(name, std::string(inner_key.str())); !known.contains(path)) {
          refuse(inner_node, path);
        }
      }
    }
  }

  const toml::table& table(const std::string& name) const {
    const toml::node* node = root_.get(name);
    if (node == nullptr) {
      throw DataError(
          fmt::format("[cost_model] {}: [{}] is missing. Hint: every key of docs/reference/cost_model.md "
                      "must be there; ringfold bench --calibrate writes a whole file",
                      file_, name));
    }
    if (!node->is_table())
      fail(*node, name, fmt::format("got {}, expected a table", shown(*node)), "write [" + name + "]");
    return *node->as_table();
  }

  bool has(const std::string& table_name, const std::string& key) const {
    return table(table_name).get(key) != nullptr;
  }

  const toml::node& required(const toml::table& table, const std::string& table_name, const std::string& key) const {
    if (const toml::node* node = table.get(key)) return *node;
    throw DataError(
        fmt::format("[cost_model] {}: {} is missing. Hint: every key of docs/reference/cost_model.md must be "
                    "there; ringfold bench --calibrate writes a whole file",
                    file_, full(table_name, key)));
  }

  double value_of(const toml::node& node, const std::string& key, bool may_be_zero) const {
    const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
    if (!value || !(may_be_zero ? *value >= 0 : *value > 0) || *value > kLargest) {
      fail(node, key, fmt::format("got {}, expected a number {} 0", shown(node), may_be_zero ? ">=" : ">"),
           "write the file anew with ringfold bench --calibrate");
    }
    return *value;
  }

  std::vector<double> rates(const char* name) const {
    const std::string key = full("attention", name);
    const toml::node& node = required(table("attention"), "attention", name);
    const auto* array = node.as_array();
    if (array == nullptr || array->empty() || array->size() > kMostRates) {
      fail(node, key, fmt::format("expected an array of 1 to {} numbers", kMostRates),
           "as many as in the other array of [attention]");
    }
    std::vector<double> values;
    for (const toml::node& item : *array) values.push_back(value_of(item, key, false));
    return values;
  }

  void check_rates(const CostModel& model) const {
    const toml::node& node = required(table("attention"), "attention", "rate_length_tokens");
    const auto& lengths = model.rate_length_tokens;
    if (lengths.size() != model.rate_flops_per_us.size()) {
      fail(node, "attention.rate_length_tokens",
           fmt::format("got {} lengths and {} rates, expected as many", lengths.size(), model.rate_flops_per_us.size()),
           "a rate for each length");
    }
    if (std::adjacent_find(lengths.begin(), lengths.end(), std::greater_equal<>()) != lengths.end()) {
      fail(node, "attention.rate_length_tokens", "got lengths that do not rise, expected ascending ones",
           "sort both arrays by length");
    }
  }

  const toml::table& root_;
  const std::string& file_;
};

// The shortest text that reads back as the same number, and that TOML takes for a float.
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string array_text(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + number_text(value);
  return "[" + text + "]";
}

}  // namespace

CostModel parse_cost_model(const std::string& text, const std::string& file) {
  try {
    const toml::table root = toml::parse(text);
    return Reader(root, file).read();
  } catch (const toml::parse_error& error) {
    throw DataError(fmt::format("[cost_model] {}:{}: broken TOML: {}. Hint: see docs/reference/cost_model.md", file,
                                error.source().begin.line, printable(error.description())));
  }
}

CostModel load_cost_model(const std::string& file) {
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in && in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  if (!in.is_open() || in.bad() || text.bad() || errno == EISDIR) {
    throw DataError(
        fmt::format("[cost_model] {}: cannot read: {}. Hint: --cost-model names a TOML file of ringfold "
                    "bench --calibrate, or a built-in model",
                    file, std::strerror(errno ? errno : EIO)));
  }
  return parse_cost_model(text.str(), file);
}

std::string cost_model_to_toml(const CostModel& model, const std::string& comment) {
  std::string text = fmt::format("# {}\nschema = {}\n", comment, kSchema);
  for (const char* table : {"pack", "attention", "exchange"}) {
    text += fmt::format("\n[{}]\n", table);
    for (const Count& count : kCounts) {
      if (std::string_view(count.table) == table) text += fmt::format("{} = {}\n", count.key, model.*count.member);
    }
    for (const Number& number : kNumbers) {
      if (std::string_view(number.table) != table) continue;
      text += fmt::format("{} = {}\n", number.key, number_text(model.*number.member));
    }
    if (std::string_view(table) != "attention") continue;
    text += fmt::format("rate_length_tokens = {}\nrate_flops_per_us = {}\n", array_text(model.rate_length_tokens),
                        array_text(model.rate_flops_per_us));
  }
  return text;
}

void save_calibration(const Calibration& calibration, const std::string& machine, const std::string& file) {
  std::string comment =
      fmt::format("ringfold bench --calibrate on {}: {} packs, median error {:.1f} %, worst {:.1f} %, {} outliers",
                  printable(machine), calibration.packs, 100 * calibration.median_error, 100 * calibration.worst_error,
                  calibration.outliers);
  if (!calibration.unmeasured.empty()) {
    comment += fmt::format("\n# not measured, only scaled along: {}", fmt::join(calibration.unmeasured, ", "));
  }
  std::ofstream out(file, std::ios::binary);
  out << cost_model_to_toml(calibration.model, comment);
  if (!out.flush()) {
    throw RunError(fmt::format("[cost_model] cannot write {}. Hint: check the folder and the disk", file));
  }
}

CostModel cost_model_of(const std::string& name_or_file) {
  if (name_or_file.ends_with(".toml")) return load_cost_model(name_or_file);
  const auto& names = cost_model_choices();
  if (std::find(names.begin(), names.end(), name_or_file) == names.end()) {
    const std::string near = nearest_name(name_or_file, names);
    throw UsageError(fmt::format("[cost_model] --cost-model: got \"{}\", expected {} or a FILE.toml{}", name_or_file,
                                 fmt::join(names, " or "),
                                 near.empty() ? "" : fmt::format(". Hint: did you mean \"{}\"?", near)));
  }
  return cost_model_named(name_or_file);
}

}  // namespace ringfold
