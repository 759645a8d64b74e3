// The messages of operations.proto that carry tensors, read and written without the copies that generated code makes.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>
#include <string_view>

#include "catalogue/wire.hpp"

namespace weft::remote {

/// A message in one piece of memory.
struct Whole {
  std::shared_ptr<const void> memory;
  std::string_view text;
  /// The memory, for tensors of this section to use; null if the section is a small part of the message, which they would keep.
  std::shared_ptr<const void> memory_for(std::string_view section) const {
    return section.size() >= text.size() / 2 ? memory : nullptr;
  }
};
/// Copies only if the message came in several pieces. Large copies begin at a multiple of 64 bytes.
Whole whole(const grpc::ByteBuffer& buffer);

/// The fields of CallRequest, as views of the message.
struct CallFields {
  std::string_view operation, input, tensors, request_id, session;
  bool keep_tensors = false;
};
/// False if the bytes are not such a message. Unknown fields are skipped.
bool read_call(std::string_view message, CallFields& fields);
/// The fields of Answer.
bool read_answer(std::string_view message, std::string_view& envelope, std::string_view& tensors);

/// CallRequest and Answer. The tensors of the section are computed, and the message refers to their memory. Padding before the section
/// makes its tensors aligned in `whole`.
grpc::ByteBuffer call_message(std::string_view operation, std::string_view input,
                              const operations::TensorSection& section, bool keep_tensors, std::string_view session,
                              std::string_view request_id = {});
grpc::ByteBuffer answer_message(std::string_view envelope, const operations::TensorSection& section);

}  // namespace weft::remote
