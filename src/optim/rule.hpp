// What the file of an update rule gives: the rows of its options, its state, and the update itself.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "weft/ops.hpp"
#include "weft/optim/rules.hpp"

namespace weft::optim {

/// The values that a number may have.
enum class Range { any, not_negative, positive, share /* [0, 1) */ };

template <class Options>
struct Field {
  const char* name;
  std::variant<double Options::*, bool Options::*, Extent Options::*> member;
  Range range = Range::any;
  const char* doc = "";
};

/// One update of a group, as a rule sees it. Decay and `maximize` are done, but for rules that decay in their own way.
struct Update {
  Tensor parameter, gradient, rate, step;
  std::vector<Tensor> state;  // the rule puts new values here
  double decay = 0;           // of rules with Decay::own
  int kind = 0;
  std::vector<Shape> shapes;  // of the group's parameters

  /// The parts of a flat value, each of its parameter's shape.
  std::vector<Tensor> parts(const Tensor& flat) const;
  /// The parts of a flat value, of other shapes.
  static std::vector<Tensor> parts(const Tensor& flat, std::span<const Shape> shapes);
  /// The parts of a flat value again.
  static Tensor join(std::span<const Tensor> parts);
};

struct StateRow {
  std::string name;
  double initial = 0;
  Shape (*shape)(const Shape& parameter) = nullptr;
  std::string older_name = {};
};

/// How parameters that decay do so: weight_decay * p is added to the gradient; p is multiplied by 1 - rate * weight_decay before the
/// update; or by the update itself.
enum class Decay { coupled, decoupled, own };

template <class Options>
struct Rule {
  const char* name;   // of the table
  const char* title;  // the class
  const char* doc;
  std::vector<Field<Options>> fields;  // but for those that all rules have
  std::vector<StateRow> (*states)(const Options&, int kind);
  /// The new parameter.
  Tensor (*update)(const Options&, Update&);
  Decay (*decay)(const Options&) = [](const Options&) { return Decay::coupled; };
  /// The kinds of parameters, for rules that have several.
  int (*kind)(const Options&, const nn::NamedParameter&) = nullptr;
  /// What rows of options cannot say.
  void (*check)(const Options&) = nullptr;
};

const Rule<SgdOptions>& rule_of(const SgdOptions&);
const Rule<AdamOptions>& rule_of(const AdamOptions&);
const Rule<AdamWOptions>& rule_of(const AdamWOptions&);
const Rule<RMSpropOptions>& rule_of(const RMSpropOptions&);
const Rule<AdagradOptions>& rule_of(const AdagradOptions&);
const Rule<AdadeltaOptions>& rule_of(const AdadeltaOptions&);
const Rule<AdamaxOptions>& rule_of(const AdamaxOptions&);
const Rule<NAdamOptions>& rule_of(const NAdamOptions&);
const Rule<RAdamOptions>& rule_of(const RAdamOptions&);
const Rule<ASGDOptions>& rule_of(const ASGDOptions&);
const Rule<RpropOptions>& rule_of(const RpropOptions&);
const Rule<LionOptions>& rule_of(const LionOptions&);
const Rule<AdafactorOptions>& rule_of(const AdafactorOptions&);
const Rule<LAMBOptions>& rule_of(const LAMBOptions&);
const Rule<MuonOptions>& rule_of(const MuonOptions&);

/// The rows of all options of a rule, those that all rules have included.
template <class Options>
std::vector<Field<Options>> fields_of() {
  std::vector<Field<Options>> fields = {{"learning_rate", &Options::learning_rate, Range::not_negative, "step length"}};
  const std::vector<Field<Options>>& own = rule_of(Options{}).fields;
  fields.insert(fields.end(), own.begin(), own.end());
  if constexpr (requires(Options o) { o.weight_decay; })
    fields.push_back({"weight_decay", &Options::weight_decay, Range::not_negative,
                      "share of the parameter that the update takes off"});
  fields.push_back({"maximize", &Options::maximize, {}, "climbs"});
  fields.push_back({"clip_norm", &Options::clip_norm, Range::not_negative,
                    "largest norm of all gradients together; 0: not clipped"});
  return fields;
}

// ---- What rules share ---------------------------------------------------------------------------------------------------

/// share * mean + (1 - share) * x.
inline Tensor moved(const Tensor& mean, const Tensor& x, double share) { return mean * share + x * (1 - share); }
/// 1 - beta^t without cancellation for small t.
inline Tensor bias_correction(double beta, const Tensor& step) {
  return beta > 0 ? -expm1(step * std::log(beta)) : ones_like(step);
}
/// b^x of a number b above 0.
inline Tensor power_of(double base, const Tensor& exponent) { return exp(exponent * std::log(base)); }

}  // namespace weft::optim
