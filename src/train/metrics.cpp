#include "train/metrics.hpp"

#include <cmath>
#include <limits>

#include "base/json.hpp"
#include "weft/error.hpp"

namespace weft::train {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A number, or NaN if the line has null.
double number_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? kNaN : value.get<double>();
}

std::optional<Metrics> parse_line(std::string_view line, const std::string& source) {
  try {
    const Json json = parse_json(line, source, {.max_depth = 2, .max_bytes = 1 << 16, .max_values = 100});
    Metrics m;
    m.step = json.at("step").get<std::int64_t>();
    m.loss = number_at(json, "loss");
    if (json.contains("val_tokens")) m.val_tokens = json.at("val_tokens").get<std::int64_t>();
    m.tokens_per_second = number_at(json, "tokens_per_second");
    m.learning_rate = number_at(json, "learning_rate");
    m.grad_norm = number_at(json, "grad_norm");
    m.seconds = number_at(json, "seconds");
    const auto optional = [&](const char* key, std::optional<double>& number) {
      if (json.contains(key)) number = number_at(json, key);
    };
    optional("val_loss", m.val_loss);
    optional("loss_scale", m.loss_scale);
    optional("accuracy", m.accuracy);
    optional("val_accuracy", m.val_accuracy);
    optional("val_f1", m.val_f1);
    optional("val_spearman", m.val_spearman);
    optional("margin", m.margin);
    optional("balance", m.balance);
    return m;
  } catch (const std::exception&) {
    return std::nullopt;  // torn by a kill, or written by another program
  }
}

}  // namespace

std::string to_json_line(const Metrics& m) {
  nlohmann::ordered_json json;  // not finite: null, as nlohmann writes it
  json["step"] = m.step;
  json["loss"] = m.loss;
  if (m.val_loss) json["val_loss"] = *m.val_loss;
  if (m.val_tokens) json["val_tokens"] = *m.val_tokens;
  json["tokens_per_second"] = m.tokens_per_second;
  json["learning_rate"] = m.learning_rate;
  json["grad_norm"] = m.grad_norm;
  if (m.loss_scale) json["loss_scale"] = *m.loss_scale;
  if (m.accuracy) json["accuracy"] = *m.accuracy;
  if (m.val_accuracy) json["val_accuracy"] = *m.val_accuracy;
  if (m.val_f1) json["val_f1"] = *m.val_f1;
  if (m.val_spearman) json["val_spearman"] = *m.val_spearman;
  if (m.margin) json["margin"] = *m.margin;
  if (m.balance) json["balance"] = *m.balance;
  json["seconds"] = m.seconds;
  return json.dump();
}

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t last_step) {
  if (std::filesystem::exists(path)) {
    const std::string text = read_text_file(path);
    std::string kept;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      const auto metrics = parse_line(line, path.string());
      if (!metrics || metrics->step > last_step) continue;
      all_.push_back(*metrics);
      kept += line + "\n";
    }
    if (kept != text) write_file_atomically(path, kept);
  }
  log_ = std::make_unique<LineLog>(path);
}

void MetricsLog::append(const Metrics& metrics) {
  log_->append(to_json_line(metrics));
  all_.push_back(metrics);
}

}  // namespace weft::train
