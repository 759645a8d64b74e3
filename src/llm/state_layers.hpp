// Layers that keep a state, as models of them and hybrids have them.
#pragma once

#include <string>

#include "llm/builder.hpp"

namespace weft::llm {

/// Mamba's layer on normalised x: convolution and scan of one branch, gated by the other.
std::string mamba_mixer(GraphBuilder& b, const std::string& x);
/// Mamba-2's: one projection for all of gate, x, b, c and the steps, and a norm behind the gate, or before it.
std::string mamba2_mixer(GraphBuilder& b, const std::string& x);

}  // namespace weft::llm
