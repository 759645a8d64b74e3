#include "remote/http/stream.hpp"

namespace weft::remote {

void Stream::read(const MutableBuffers& buffers, Done done) {
  if (tls_)
    tls_->async_read_some(buffers, std::move(done));
  else
    tcp_.async_read_some(buffers, std::move(done));
}
void Stream::write(const ConstBuffers& buffers, Done done) {
  if (tls_)
    tls_->async_write_some(buffers, std::move(done));
  else
    tcp_.async_write_some(buffers, std::move(done));
}

}  // namespace weft::remote
