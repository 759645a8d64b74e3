// What a WebGPU library prints, taken for the log.
#pragma once

namespace weft::webgpu {

/// Dawn prints warnings on standard error, and its C interface cannot turn that off. From now on what the library that
/// `function` stands in gives to fprintf for standard output and error goes to the log. Does nothing where the library
/// imports no such function, or its tables are of another kind.
void take_prints(const void* function);

}  // namespace weft::webgpu
