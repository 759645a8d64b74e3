// Redirects the prints of a WebGPU library to the log.
#pragma once

namespace weft::webgpu {

/// Dawn prints warnings on standard error, and its C interface cannot turn that off. From now on, text that the library of
/// `function` passes to fprintf for standard output and error goes to the log. Does nothing if the library does not import
/// fprintf, or if its tables are of another kind.
void take_prints(const void* function);

}  // namespace weft::webgpu
