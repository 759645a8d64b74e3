// Families of ops that need values, or state in memory.
#pragma once

#include "graph/op_families.hpp"

namespace weft::runtime {

graph::OpRows random_family();           // random_rows.cpp: rand, randn, dropout
graph::OpRows distribution_family();     // distributions.cpp: randint, multinomial, ...
graph::OpRows sized_family();            // sized_ops.cpp: nonzero, unique, ...
graph::OpRows fractional_pool_family();  // fractional_pools.cpp: fractional_max_pool2d, ...

}  // namespace weft::runtime
