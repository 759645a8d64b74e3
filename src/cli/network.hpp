// The part of Weft that uses the network, which is a library of its own.
#pragma once

#include "remote/module.hpp"

namespace weft::cli {

/// Loads libweft_remote.so at the first call, from beside the program or ../lib/weft.
/// Errors: FileError if it is missing, cannot be loaded, or belongs to another version.
const remote::Module& network();

/// Raises the limit of open descriptors to what the system permits; call it before a server starts. Each connection takes four, and a
/// shell often allows 1024.
void allow_more_descriptors();

}  // namespace weft::cli
