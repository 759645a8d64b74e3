// What adapters change of a model besides its products: tensors that they hold as a whole, and tables of tokens.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "io/tensor_source.hpp"
#include "llm/weights.hpp"
#include "weft/llm.hpp"

namespace weft::llm {

/// The model with these changes, or nothing if the adapters have none. A tensor W becomes W + scale (W' - W) for one that an adapter
/// holds as a whole (modules_to_save), and W + scale (B A)^T for a table with a low-rank change. Each is made when its data is asked
/// for, in its own type, or as F16 where that is one of blocks. If the head is the table of tokens too and one of the two changes, the
/// other stays as it is: the model gets a head of its own.
/// Errors: FileError for tensors that the model lacks or has in another shape, and for those that its kind of file writes otherwise.
std::optional<io::TensorSource> with_saved_tensors(const io::TensorSource& source,
                                                   std::span<const AdapterUse> adapters);

/// The graph of the model that a source holds, as it reads texts. Its tensors are checked.
ModelGraph graph_of_text(const io::TensorSource& source, const TensorNames& names);

/// A tensor of a source whose values are changed when its data is asked for. Its type stays if it is F32, F16 or BF16, else it is F16.
io::SourceTensor edited(const std::shared_ptr<const io::TensorSource>& source, const io::SourceTensor& tensor,
                        std::function<void(std::vector<float>& values)> edit);

}  // namespace weft::llm
