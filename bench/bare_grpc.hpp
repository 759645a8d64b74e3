// Bytes through gRPC without Weft, to compare with.
#pragma once

#include <cstddef>
#include <memory>

namespace weft::bench {

/// A server and a client on this machine, with the options that those of Weft have.
class BareGrpc {
 public:
  explicit BareGrpc(std::size_t bytes);
  ~BareGrpc();
  void send();     ///< the bytes to the server
  void receive();  ///< the bytes from it
  void call();     ///< a byte there and a byte back

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::bench
