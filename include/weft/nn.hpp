// Neural networks: modules, layers, GPT, losses, initialisers.
#pragma once

#include "weft/nn/clustering.hpp"
#include "weft/nn/gpt.hpp"
#include "weft/nn/hooks.hpp"
#include "weft/nn/images.hpp"
#include "weft/nn/init.hpp"
#include "weft/nn/label_losses.hpp"
#include "weft/nn/layers.hpp"
#include "weft/nn/losses.hpp"
#include "weft/nn/margin_losses.hpp"
#include "weft/nn/mixture.hpp"
#include "weft/nn/module.hpp"
#include "weft/nn/recurrent.hpp"
#include "weft/nn/state.hpp"
#include "weft/nn/state_space.hpp"
#include "weft/nn/table.hpp"
#include "weft/nn/tree_model.hpp"
