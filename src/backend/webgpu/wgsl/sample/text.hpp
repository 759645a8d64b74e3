// Parts of the shaders of sample.cpp. They refer to constants, to workgroup arrays and to functions around operands
// that are written there.
#pragma once

#include <string_view>

namespace weft::webgpu::sample {

// Shared.
extern const std::string_view kKeys, kSum, kQuotient, kMasses;
// Adjusted logits and the best of each part.
extern const std::string_view kPartFunctions, kPartBody;
// Candidates and their mass by bins.
extern const std::string_view kWeightBody, kWeightFunctions;
// The draw.
extern const std::string_view kDrawNumbers, kDrawSums, kRunUp, kRunUpAlone, kDrawCandidates, kDrawBody;

}  // namespace weft::webgpu::sample
