// Volumetric networks: grids of layers as data, made into modules.
#pragma once

#include "weft/grid/builders.hpp"
#include "weft/grid/checkpoint.hpp"
#include "weft/grid/description.hpp"
#include "weft/grid/network.hpp"
#include "weft/grid/number_types.hpp"
#include "weft/grid/observe.hpp"
#include "weft/grid/q4_blocks.hpp"
#include "weft/grid/stream.hpp"
#include "weft/grid/systolic.hpp"
#include "weft/grid/target_propagation.hpp"
