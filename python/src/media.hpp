// Sounds as Python gives and takes them: samples [channels, frames], and a rate.
#pragma once

#include "handle.hpp"
#include "weft/audio/sound.hpp"

namespace weft::python {

/// Samples from a Tensor or NumPy. Errors as audio::from_tensor, and those of objects that are not tensors.
audio::Sound sound_from(const nb::object& samples, int rate);
/// (samples, rate), the samples on the CPU.
nb::tuple sound_object(const audio::Sound& sound);

}  // namespace weft::python
