// The messages of operations.proto that carry tensors, read and written without the copies that generated code makes.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <string_view>

#include "catalogue/wire.hpp"

namespace weft::remote {

/// A message in one piece of memory. Copies only if it came in several.
grpc::Slice whole(const grpc::ByteBuffer& buffer);
std::string_view text_of(const grpc::Slice& slice);

/// The fields of CallRequest, as views of the message.
struct CallFields {
  std::string_view operation, input, tensors, request_id, session;
  bool keep_tensors = false;
};
/// False if the bytes are not such a message. Unknown fields are skipped.
bool read_call(std::string_view message, CallFields& fields);
/// The fields of Answer.
bool read_answer(std::string_view message, std::string_view& envelope, std::string_view& tensors);

/// CallRequest and Answer; the tensors of the section are computed and written to the message itself.
grpc::ByteBuffer call_message(std::string_view operation, std::string_view input,
                              const operations::TensorSection& section, bool keep_tensors, std::string_view session);
grpc::ByteBuffer answer_message(std::string_view envelope, const operations::TensorSection& section);

}  // namespace weft::remote
