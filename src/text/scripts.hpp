// The script of a character, as far as the pre-tokenizer UnicodeScripts asks.
#pragma once

namespace weft::text {

/// A number for each script, and two more: for a space or a character without a script, and for no character.
enum class Script : short { kAny = -1, kNone = -2 };

/// Hiragana, Katakana and the long vowel mark count as Han.
Script script_for_splitting(char32_t c);

}  // namespace weft::text
