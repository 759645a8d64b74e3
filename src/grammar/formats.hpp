// Formats of strings as automata.
#pragma once

#include <string_view>

#include "grammar/regular.hpp"

namespace weft::grammar {

/// Texts of date-time, time, date, duration, email, hostname, ipv4, ipv6, uuid or uri; null for another name. They are a part of
/// what the validator of schemas takes: leap seconds are those of UTC, local parts of addresses have no quotes, and names of
/// hosts have up to three labels, or up to eight of 30 characters. Thread safety: any thread may call it.
const Regular* find_format_automaton(std::string_view name);

}  // namespace weft::grammar
