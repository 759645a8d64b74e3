// Sound: files, resampling, spectra and mel spectrograms.
#pragma once

#include "weft/audio/features.hpp"
#include "weft/audio/sound.hpp"
