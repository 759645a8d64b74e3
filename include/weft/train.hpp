// Training on text: data, runs, checkpoints, generation.
#pragma once

#include "weft/train/checkpoint.hpp"
#include "weft/train/config.hpp"
#include "weft/train/fit.hpp"
#include "weft/train/generate.hpp"
#include "weft/train/observer.hpp"
#include "weft/train/run.hpp"
#include "weft/train/text.hpp"
#include "weft/train/trainer.hpp"
