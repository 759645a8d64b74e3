// What the nouns of images, sounds, vision and speech share.
#pragma once

#include "script/engine.hpp"
#include "weft/audio/sound.hpp"

namespace weft::script {

/// Options as C++ names them: members in camel case become snake case, in members that are objects too.
Value snake_options(const Value& given);
Value options_at(Engine& engine, Arguments arguments, std::size_t i);

/// {samples, rate}. Errors: UsageError.
audio::Sound sound_at(Engine& engine, Arguments arguments, std::size_t i, const char* function);
Local sound_to(Engine& engine, const audio::Sound& sound);

}  // namespace weft::script
