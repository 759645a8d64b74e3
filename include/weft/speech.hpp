// Speech: sounds to texts, and texts to sounds.
#pragma once

#include "weft/speech/detector.hpp"
#include "weft/speech/load.hpp"
#include "weft/speech/transcriber.hpp"
#include "weft/speech/values.hpp"
#include "weft/speech/voice.hpp"
