// Functions of ops in scripts.
#pragma once

#include <string>
#include <vector>

#include "script/engine.hpp"

namespace weft::script {

/// Whether a row is a method of tensors too; whether it has a form that changes its handle, as x.add_(y).
bool is_method(const graph::OpRow& row);
bool has_in_place(const graph::OpRow& row);
/// Whether a row belongs to a script and not to Weft.
inline bool is_of_script(const graph::OpRow& row) { return row.name.starts_with("script_"); }
/// The names of a row in scripts: those of the table, and the same in camel case.
std::vector<std::string> script_names(const graph::OpRow& row);
/// The name in `nn` of a loss of the table: ctc_loss is nn.ctc.
std::string name_of_loss(const graph::OpRow& row);
/// The function that applies a row.
Local function_of_row(Engine& engine, const graph::OpRow& row);
std::uint64_t next_kernel_number();
/// An input or result of an op where the table has `operand`.
std::string camel(std::string_view name);

}  // namespace weft::script
