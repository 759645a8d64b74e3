// The storage formats of tensors in model files, in the namespace of the file readers and writers.
#pragma once

#include "tensor/block_format.hpp"

namespace weft::io {

using weft::block_format;
using weft::block_format_list;
using weft::block_formats;
using weft::BlockFormat;
using weft::BlockType;
using weft::bytes_for;
using weft::dequantise;
using weft::file_name_of;
using weft::find_block_format;
using weft::find_not_finite;
using weft::quantise;
using weft::rows_divide;
using weft::unread_gguf_type;

}  // namespace weft::io
