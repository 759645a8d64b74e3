// Optimisers, schedules, clipping.
#pragma once

#include "weft/optim/optimizer.hpp"
#include "weft/optim/schedule.hpp"
