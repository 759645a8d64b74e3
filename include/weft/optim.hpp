// Optimisers, schedules, clipping.
#pragma once

#include "weft/optim/gradient_sum.hpp"
#include "weft/optim/loss_scale.hpp"
#include "weft/optim/optimizer.hpp"
#include "weft/optim/schedule.hpp"
