// Optimisers, schedules, clipping, averages.
#pragma once

#include "weft/optim/average.hpp"
#include "weft/optim/gradient_sum.hpp"
#include "weft/optim/lbfgs.hpp"
#include "weft/optim/loss_scale.hpp"
#include "weft/optim/optimizer.hpp"
#include "weft/optim/schedule.hpp"
