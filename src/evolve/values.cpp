#include "weft/evolve/values.hpp"

#include <cmath>
#include <span>

#include "schema/value_options.hpp"
#include "weft/tensor.hpp"

namespace weft::evolve {
namespace {

Value number_or_null(double number) { return std::isfinite(number) ? Value(number) : Value(); }

Value similarities_value(const std::map<Coordinate, double>& similarities) {
  Value::Array all;
  for (const auto& [at, similarity] : similarities)
    all.push_back(Value::object({{"at", grid::to_string(at)}, {"similarity", similarity}}));
  return all;
}

SpliceMode splice_mode(const std::string& name) {
  if (name == "blend") return SpliceMode::blend;
  if (name == "point") return SpliceMode::point;
  if (name == "uniform") return SpliceMode::uniform;
  throw UsageError(fmt::format("splice: there is no mode {}; known are blend, point, uniform", quote(name)));
}

}  // namespace

Value to_value(const std::vector<Signature>& dna) {
  Value::Array all;
  for (const Signature& each : dna)
    all.push_back(Value::object({{"at", grid::to_string(each.at)},
                                 {"type", grid::name_of(each.type)},
                                 {"dtype", name_of(each.dtype)},
                                 {"direction", tensor<float>(std::span<const float>(each.direction),
                                                             {static_cast<Extent>(each.direction.size())})}}));
  return all;
}

Value to_value(const Comparison& comparison) {
  Value::Array shifts;
  for (const LogicShift& each : comparison.shifts)
    shifts.push_back(Value::object(
        {{"from", grid::to_string(each.from)}, {"to", grid::to_string(each.to)}, {"similarity", each.similarity}}));
  return Value::object({{"overall", comparison.overall},
                        {"layers", similarities_value(comparison.layers)},
                        {"shifts", std::move(shifts)}});
}

Value to_value(const Splice& splice) {
  return Value::object({{"spliced", splice.spliced},
                        {"similar", splice.similar},
                        {"similarities", similarities_value(splice.similarities)}});
}

Value to_value(const Generation& generation) {
  return Value::object({{"generation", generation.number},
                        {"best", number_or_null(generation.best)},
                        {"mean", number_or_null(generation.mean)},
                        {"worst", number_or_null(generation.worst)}});
}

SpliceOptions splice_options(const Value& options) {
  SpliceOptions o;
  std::string mode = "blend";
  ValueOptions(options, "splice")
      .read("mode", mode)
      .read("split_ratio", o.split_ratio)
      .read("blend_alpha", o.blend_alpha)
      .read("fitness_a", o.fitness_a)
      .read("fitness_b", o.fitness_b)
      .read("seed", o.seed)
      .finish();
  o.mode = splice_mode(mode);
  return o;
}

MutationOptions mutation_options(const Value& options) {
  MutationOptions o;
  ValueOptions(options, "mutate")
      .read("weights", o.weights)
      .read("amount", o.amount)
      .read("activation", o.activation)
      .read("node", o.node)
      .read("toggle", o.toggle)
      .read("add_link", o.add_link)
      .read("drop_link", o.drop_link)
      .read("width", o.width)
      .read("seed", o.seed)
      .finish();
  return o;
}

PopulationOptions population_options(const Value& options) {
  PopulationOptions o;
  Value::Object own = options.is_object() ? options.members() : Value::Object();
  if (const Value* mutation = own.find("mutation")) o.mutation = mutation_options(*mutation);
  if (const Value* splice = own.find("splice")) o.splice = splice_options(*splice);
  own.remove("mutation");
  own.remove("splice");
  ValueOptions(options.is_object() ? Value(own) : options, "population")
      .read("size", o.size)
      .read("seed", o.seed)
      .finish();
  return o;
}

}  // namespace weft::evolve
