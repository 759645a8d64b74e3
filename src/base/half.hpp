// Conversions of 16-bit floats are public; see weft/half.hpp.
#pragma once

#include "weft/half.hpp"
