// Training on text: data, runs, checkpoints, generation.
#pragma once

#include "weft/train/checkpoint.hpp"
#include "weft/train/config.hpp"
#include "weft/train/generate.hpp"
#include "weft/train/text.hpp"
#include "weft/train/trainer.hpp"
