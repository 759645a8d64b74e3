// Evolution of volumetric networks: DNA, splicing, mutation, populations, grafting; ensembles, clusters, metrics.
#pragma once

#include "weft/evolve/clustering.hpp"
#include "weft/evolve/dna.hpp"
#include "weft/evolve/ensemble.hpp"
#include "weft/evolve/grafting.hpp"
#include "weft/evolve/metrics.hpp"
#include "weft/evolve/mutation.hpp"
#include "weft/evolve/population.hpp"
#include "weft/evolve/splice.hpp"
#include "weft/evolve/values.hpp"
