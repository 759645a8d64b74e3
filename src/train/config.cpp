#include "weft/train/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "train/run_optimizer.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/optim/schedule.hpp"

namespace weft::train {
namespace {

// Learning rates: best of a sweep over 1e-3 ... 8e-3 for `small` (3,000 steps on Moby-Dick: 1.68 at 1e-3, 1.60 at 4e-3 and
// 6e-3), and scaled down with the width for the others.
constexpr Preset kPresets[] = {
    {"tiny",
     "2 layers, width 64, 2 heads, context 32, batch 8: seconds, for trying things out",
     {.vocabulary = 1, .context = 32, .layers = 2, .heads = 2, .width = 64},
     8,
     1000,
     4e-3},
    {"small",
     "4 layers, width 128, 4 heads, context 64, batch 16: minutes on a CPU",
     {.vocabulary = 1, .context = 64, .layers = 4, .heads = 4, .width = 128},
     16,
     3000,
     4e-3},
    {"char-gpt",
     "6 layers, width 384, 6 heads, context 256, batch 64: minutes on a GPU",
     {.vocabulary = 1, .context = 256, .layers = 6, .heads = 6, .width = 384},
     64,
     2000,
     1e-3},
    {"gpt2",
     "12 layers, width 768, 12 heads, context 1024, batch 8: GPT-2's 124 M parameters, its 50,257 rows of vocabulary "
     "included",
     {.vocabulary = 50257, .context = 1024, .layers = 12, .heads = 12, .width = 768},
     8,
     10000,
     6e-4},
};

// Collects options that differ from the stored run, for the error message.
struct Contradictions {
  std::string text;
  template <class T>
  void check(const char* option, const std::optional<T>& asked, const T& stored) {
    if (asked && *asked != stored) text += fmt::format("\n  --{} {}  (the run has {})", option, *asked, stored);
  }
};

Json model_json(const nn::GptConfig& m) {
  return {{"vocabulary", m.vocabulary},
          {"context", m.context},
          {"layers", m.layers},
          {"heads", m.heads},
          {"width", m.width},
          {"dropout", m.dropout},
          {"bias", m.bias},
          {"tied", m.tied},
          {"init_deviation", m.init_deviation}};
}

}  // namespace

std::span<const Preset> presets() { return kPresets; }

const Preset& preset(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Preset& p : kPresets) {
    if (p.name == name) return p;
    names.push_back(p.name);
  }
  throw UsageError(fmt::format("preset {}: unknown; choose one of {}", quote(name), fmt::join(names, ", ")));
}

DType precision_named(std::string_view name) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16})
    if (name_of(type) == name) return type;
  throw UsageError(fmt::format("precision {}: unknown; choose f32, bf16 or f16", quote(name)));
}

double RunConfig::learning_rate_at(std::int64_t step, double elapsed) const {
  const double final_rate = learning_rate * final_fraction;
  if (steps > 0) {
    const double rise = std::min(warm_up, static_cast<double>(steps) / 10);
    return optim::Schedule::cosine(learning_rate, final_rate, static_cast<double>(steps))
        .with_warm_up(rise)
        .at(static_cast<double>(step));
  }
  const double progress = seconds > 0 ? std::min(1.0, elapsed / seconds) : 0;
  const double rise = warm_up > 0 ? std::max((static_cast<double>(step) + 1) / warm_up, progress * 10) : 1;
  return std::min(1.0, rise) * optim::Schedule::cosine(learning_rate, final_rate, 1).at(progress);
}

void RunConfig::check() const {
  model.check();
  struct Bound {
    const char* name;
    double value, least, limit;
  };
  const Bound bounds[] = {
      {"batch", static_cast<double>(batch), 1, 1 << 24},
      {"accumulate", static_cast<double>(accumulate), 1, 1 << 16},
      {"steps", static_cast<double>(steps), 0, 1 << 30},
      {"seconds", seconds, 0, 1e9},
      {"learning-rate", learning_rate, 0, 1e6},
      {"final-fraction", final_fraction, 0, 1},
      {"warm-up", warm_up, 0, 1e9},
      {"weight-decay", weight_decay, 0, 1e6},
      {"beta-1", beta_1, 0, 1 - 1e-9},
      {"beta-2", beta_2, 0, 1 - 1e-9},
      {"clip", clip_norm, 0, 1e30},
  };
  for (const Bound& b : bounds)
    if (!(b.value >= b.least && b.value <= b.limit))
      throw UsageError(fmt::format("--{} {}: it must be in [{}, {}]", b.name, b.value, b.least, b.limit));
  make_optimizer(*this, std::vector<Variable>{Variable(zeros({1, 1}), "parameter")}, true);  // checks the options
  if (exchange == DType::f16 && precision != DType::f16)
    throw UsageError(
        fmt::format("--exchange f16: the loss of a run in {} is not scaled, and many of its gradients are too small "
                    "for f16; choose "
                    "bf16, or --precision f16",
                    name_of(precision)));
  if (steps == 0 && seconds == 0) throw UsageError("a run needs --steps or --seconds above 0");
}

namespace {

// A run may be resumed from another working folder.
std::string absolute_path(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return (error ? path : whole.lexically_normal()).string();
}

// As it is given: NAME=VALUE, one after another.
std::string text_of(const optim::OptionValues& options) {
  std::string text;
  for (const auto& [name, value] : options)
    text += (text.empty() ? "" : " ") + std::visit([&](const auto v) { return fmt::format("{}={}", name, v); }, value);
  return text;
}

}  // namespace

RunConfig new_run(const TrainRequest& request) {
  RunConfig run;
  run.preset = request.preset.value_or("small");
  const Preset& base = preset(run.preset);
  run.model = base.model;
  run.batch = request.batch.value_or(base.batch);
  run.learning_rate = request.learning_rate.value_or(base.learning_rate);
  run.steps = request.steps.value_or(request.seconds ? 0 : base.steps);
  run.seconds = request.seconds.value_or(0);
  if (request.steps && *request.steps < 1)
    throw UsageError(fmt::format("--steps {}: it must be at least 1", *request.steps));
  if (request.seconds && !(*request.seconds > 0))
    throw UsageError(fmt::format("--seconds {}: it must be above 0", *request.seconds));

  if (!request.data) throw UsageError("no text to train on: give --data FILE (any UTF-8 text)");
  run.data = absolute_path(*request.data);
  run.vocabulary = alphabet_kind(request.vocabulary.value_or("char"));
  run.model.context = request.context.value_or(run.model.context);
  run.model.layers = request.layers.value_or(run.model.layers);
  run.model.heads = request.heads.value_or(run.model.heads);
  run.model.width = request.width.value_or(run.model.width);
  run.model.dropout = request.dropout.value_or(run.model.dropout);
  run.model.tied = request.tied.value_or(run.model.tied);
  run.seed = request.seed.value_or(run.seed);
  run.final_fraction = request.final_fraction.value_or(run.final_fraction);
  run.warm_up = request.warm_up.value_or(run.warm_up);
  if (request.optimizer) run.optimizer = optim::rule_named(*request.optimizer).name;
  run.optimizer_options = optim::option_values(request.optimizer_options);
  run.weight_decay = request.weight_decay.value_or(run.weight_decay);
  run.beta_1 = request.beta_1.value_or(run.beta_1);
  run.beta_2 = request.beta_2.value_or(run.beta_2);
  run.clip_norm = request.clip_norm.value_or(run.clip_norm);
  run.accumulate = request.accumulate.value_or(run.accumulate);
  run.recompute = request.recompute.value_or(run.recompute);
  if (request.precision) run.precision = precision_named(*request.precision);
  if (request.exchange) run.exchange = precision_named(*request.exchange);
  run.check();
  return run;
}

RunConfig resumed_run(const RunConfig& stored, const TrainRequest& request, double elapsed) {
  Contradictions c;
  c.check("preset", request.preset, stored.preset);
  if (request.vocabulary)
    c.check("vocabulary", std::optional(std::string(name_of(alphabet_kind(*request.vocabulary)))),
            std::string(name_of(stored.vocabulary)));
  c.check("seed", request.seed, stored.seed);
  c.check("batch", request.batch, stored.batch);
  c.check("accumulate", request.accumulate, stored.accumulate);
  c.check("context", request.context, stored.model.context);
  c.check("layers", request.layers, stored.model.layers);
  c.check("heads", request.heads, stored.model.heads);
  c.check("width", request.width, stored.model.width);
  c.check("tied", request.tied, stored.model.tied);
  c.check("dropout", request.dropout, stored.model.dropout);
  c.check("learning-rate", request.learning_rate, stored.learning_rate);
  c.check("final-fraction", request.final_fraction, stored.final_fraction);
  c.check("warm-up", request.warm_up, stored.warm_up);
  c.check("optimizer", request.optimizer, stored.optimizer);
  if (!request.optimizer_options.empty() && optim::option_values(request.optimizer_options) != stored.optimizer_options)
    c.check("optimizer-option", std::optional(fmt::format("{}", fmt::join(request.optimizer_options, " "))),
            text_of(stored.optimizer_options));
  c.check("weight-decay", request.weight_decay, stored.weight_decay);
  c.check("beta-1", request.beta_1, stored.beta_1);
  c.check("beta-2", request.beta_2, stored.beta_2);
  c.check("clip", request.clip_norm, stored.clip_norm);
  if (!c.text.empty())
    throw UsageError(
        fmt::format("--resume: these options differ from the run in {}; leave them out to go on with it, or train into "
                    "another --out{}",
                    request.out.string(), c.text));
  RunConfig run = stored;
  if (request.data) run.data = absolute_path(*request.data);
  if (request.precision) run.precision = precision_named(*request.precision);
  if (request.exchange) run.exchange = precision_named(*request.exchange);
  run.recompute = request.recompute.value_or(run.recompute);
  if (request.steps) run.steps = *request.steps;
  if (request.seconds) {
    run.seconds = elapsed + *request.seconds;
    if (!request.steps) run.steps = 0;
  } else if (request.steps) {
    run.seconds = 0;
  }
  run.check();
  return run;
}

std::string to_json(const RunConfig& c) {
  Json options = Json::object();
  for (const auto& [name, value] : c.optimizer_options) std::visit([&](const auto v) { options[name] = v; }, value);
  const Json json = {{"preset", c.preset},
                     {"model", model_json(c.model)},
                     {"data", c.data},
                     {"data_hash", fmt::format("{:016x}", c.data_hash)},
                     {"vocabulary", std::string(name_of(c.vocabulary))},
                     {"batch", c.batch},
                     {"seed", c.seed},
                     {"steps", c.steps},
                     {"seconds", c.seconds},
                     {"learning_rate", c.learning_rate},
                     {"final_fraction", c.final_fraction},
                     {"warm_up", c.warm_up},
                     {"optimizer", c.optimizer},
                     {"optimizer_options", options},
                     {"weight_decay", c.weight_decay},
                     {"beta_1", c.beta_1},
                     {"beta_2", c.beta_2},
                     {"clip_norm", c.clip_norm},
                     {"precision", std::string(name_of(c.precision))},
                     {"exchange", std::string(name_of(c.exchange))},
                     {"accumulate", c.accumulate},
                     {"recompute", c.recompute}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

RunConfig run_config_from_json(std::string_view text, std::string_view source) {
  const Json json = parse_json(text, source, {.max_bytes = 1 << 20, .max_values = 1000});
  RunConfig c;
  try {
    const Json& m = json.at("model");
    c.preset = json.at("preset").get<std::string>();
    c.model = {.vocabulary = m.at("vocabulary").get<Extent>(),
               .context = m.at("context").get<Extent>(),
               .layers = m.at("layers").get<Extent>(),
               .heads = m.at("heads").get<Extent>(),
               .width = m.at("width").get<Extent>(),
               .dropout = m.at("dropout").get<double>(),
               .bias = m.at("bias").get<bool>(),
               .tied = m.at("tied").get<bool>(),
               .init_deviation = m.at("init_deviation").get<double>()};
    c.data = json.at("data").get<std::string>();
    c.data_hash = std::stoull(json.at("data_hash").get<std::string>(), nullptr, 16);
    c.vocabulary = alphabet_kind(json.at("vocabulary").get<std::string>());
    c.batch = json.at("batch").get<Extent>();
    c.seed = json.at("seed").get<std::uint64_t>();
    c.steps = json.at("steps").get<std::int64_t>();
    c.seconds = json.at("seconds").get<double>();
    c.learning_rate = json.at("learning_rate").get<double>();
    c.final_fraction = json.at("final_fraction").get<double>();
    c.warm_up = json.at("warm_up").get<double>();
    c.optimizer = json.value("optimizer", "adamw");  // older runs have none of these
    const Json options = json.value("optimizer_options", Json::object());
    for (const auto& [name, value] : options.items())
      c.optimizer_options[name] = value.is_boolean() ? optim::OptionValue(value.get<bool>()) : value.get<double>();
    c.weight_decay = json.at("weight_decay").get<double>();
    c.beta_1 = json.at("beta_1").get<double>();
    c.beta_2 = json.at("beta_2").get<double>();
    c.clip_norm = json.at("clip_norm").get<double>();
    c.precision = precision_named(json.value("precision", "f32"));  // older runs have none of these
    c.exchange = precision_named(json.value("exchange", "f32"));
    c.accumulate = json.value("accumulate", Extent{1});
    c.recompute = json.value("recompute", false);
    c.check();
  } catch (const std::exception& error) {
    throw FileError(
        fmt::format("{}: not a configuration of a run that this version of Weft can read: {}", source, error.what()));
  }
  return c;
}

}  // namespace weft::train
