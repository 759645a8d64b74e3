// Optimisers: their base, the update rules, and the table that makes them by name.
#pragma once

#include "weft/optim/base.hpp"
#include "weft/optim/rules.hpp"
#include "weft/optim/table.hpp"
