// Options and results of evolution as values: what operations, scripts and Python take and give.
#pragma once

#include <vector>

#include "weft/evolve/dna.hpp"
#include "weft/evolve/population.hpp"
#include "weft/evolve/splice.hpp"
#include "weft/value.hpp"

namespace weft::evolve {

/// [{"at": "0,0,0,2", "type": "dense", "dtype": "f32", "direction": a tensor f32 [parameters]}, ...], on the default device.
Value to_value(const std::vector<Signature>& dna);
/// {"overall", "layers": [{"at", "similarity"}], "shifts": [{"from", "to", "similarity"}]}.
Value to_value(const Comparison& comparison);
/// {"spliced", "similar", "similarities": [{"at", "similarity"}]}.
Value to_value(const Splice& splice);
/// {"generation", "best", "mean", "worst"}; null for a number that is not finite.
Value to_value(const Generation& generation);

/// From an object with some members of these structs, by their names; a mode by its name. What is not given keeps its default. Errors:
/// UsageError for a member that is unknown or of the wrong kind; ranges are checked where the options are used.
SpliceOptions splice_options(const Value& options);
MutationOptions mutation_options(const Value& options);
/// Members "size", "seed", "mutation" and "splice".
PopulationOptions population_options(const Value& options);

}  // namespace weft::evolve
