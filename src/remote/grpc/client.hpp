// Calls of operations over gRPC.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/caller.hpp"

namespace weft::remote {

struct GrpcClientOptions {
  std::string address;  ///< HOST:PORT
  std::string token;
  std::filesystem::path authority;  ///< PEM file with the server's certificate authority; setting it turns TLS on
  std::filesystem::path certificate, key;
};

/// The tensors that its calls leave at the server live as long as the client.
class GrpcClient : public serve::Caller {
 public:
  explicit GrpcClient(const GrpcClientOptions& options);
  ~GrpcClient() override;
  std::vector<operations::Specification> operations() override;
  operations::Envelope call(std::string_view id, const Value& input,
                            const serve::RemoteCallOptions& options = {}) override;
  void run(std::string_view id, const Value& input, const serve::RemoteCallOptions& options,
           const std::function<bool(operations::Envelope)>& take) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::remote
