#include "hub/download.hpp"

#include <fmt/format.h>

#include <charconv>

#include "base/quote.hpp"
#include "hub/names.hpp"
#include "hub/partial_file.hpp"
#include "weft/error.hpp"

namespace weft::hub {
namespace {

using Ending = HttpReply::Ending;

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

/// The first byte and the size of "bytes 100-999/1000".
struct Range {
  std::uint64_t first = 0;
  std::optional<std::uint64_t> bytes;
};
std::optional<Range> read_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const std::size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos) return std::nullopt;
  const auto first = number_in(text.substr(0, dash));
  if (!first) return std::nullopt;
  return Range{*first, number_in(text.substr(slash + 1))};
}

std::string find_header(const Headers& headers, std::string_view name) {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

class Downloader {
 public:
  Downloader(Client& client, const Download& download)
      : client_(client), d_(download), file_(download.path), validator_(download.validator), bytes_(download.bytes) {}

  std::uint64_t run() {
    if (bytes_ && file_.size() > *bytes_) file_.clear();
    fetch_whole();
    if (!d_.sha256.empty() && !hash_fits()) {
      // The part of an earlier fetch may have been of another file.
      if (!was_continued_) refuse_hash();
      file_.clear();
      fetch_whole();
      if (!hash_fits()) refuse_hash();
    }
    client_.check_stop();
    file_.finish();
    return fetched_;
  }

 private:
  bool is_whole() const { return bytes_ && file_.size() == *bytes_; }

  void fetch_whole() {
    was_continued_ = file_.size() > 0;
    file_.hash_content(client_.options().stop);
    client_.check_stop();
    if (is_whole()) {
      if (d_.on_bytes) d_.on_bytes(file_.size());
      if (!d_.sha256.empty() || file_.size() == 0) return;
      file_.clear();  // complete, but nothing says of which version
    }
    const HttpReply reply = client_.persist(d_.what, [&](bool& got_bytes) { return attempt(got_bytes); });
    if (reply.status / 100 != 2)
      throw FileError(fmt::format("{}: the server answered {}{}", d_.what, reply.status,
                                  reply.status == 404 ? ": there is no such file"
                                  : reply.status == 401 || reply.status == 403
                                      ? ": it wants a permission, which Weft has no token for"
                                      : ""));
  }

  HttpReply attempt(bool& got_bytes) {
    // Without a hash or a validator nothing tells whether the part is of the same file.
    if (file_.size() > 0 && d_.sha256.empty() && validator_.empty()) file_.clear();
    const std::uint64_t begin = file_.size();
    HttpRequest request{.address = d_.address, .headers = {"Accept-Encoding: identity"}};
    if (begin > 0) {
      request.headers.push_back(fmt::format("Range: bytes={}-", begin));
      if (d_.sha256.empty()) request.headers.push_back("If-Range: " + validator_);
    }
    request.on_head = [&](int status, const Headers& headers) { return take_head(status, headers); };
    request.on_body = [&](std::span<const std::byte> bytes) {
      take(bytes);
      got_bytes = true;
      return true;
    };
    HttpReply reply = client_.get(std::move(request));
    if (reply.status == 416) {  // the part is longer than the file: it belongs to another one
      file_.clear();
      reply.ending = Ending::cut;
      reply.fault = "the part of an earlier fetch does not belong to this file";
    } else if (reply.ending == Ending::whole && reply.status / 100 == 2 && bytes_ && file_.size() != *bytes_) {
      reply.ending = Ending::cut;
      reply.fault = fmt::format("{} of {} bytes came", file_.size(), *bytes_);
    }
    return reply;
  }

  /// Before the body: whether it begins where the part ends.
  bool take_head(int status, const Headers& headers) {
    if (status / 100 != 2) return true;
    std::optional<std::uint64_t> whole;
    if (status == 206) {
      const auto range = read_range(find_header(headers, "content-range"));
      if (!range || range->first != file_.size())
        throw FileError(fmt::format("{}: the server sent another part of the file than the one from byte {} on: {}",
                                    d_.what, file_.size(), quote(find_header(headers, "content-range"), 80)));
      whole = range->bytes;
    } else {
      if (file_.size() > 0) file_.clear();  // the server sends all of it
      whole = number_in(find_header(headers, "content-length"));
    }
    if (whole && d_.bytes && *whole != *d_.bytes)
      throw FileError(fmt::format("{}: the server sends {} bytes, but the hub lists {}", d_.what, *whole, *d_.bytes));
    if (whole) bytes_ = whole;
    const std::string tag = find_header(headers, "etag");
    if (!tag.starts_with("W/")) validator_ = tag;  // a weak one does not vouch for each byte
    if (d_.on_head) d_.on_head(whole.value_or(0), validator_);
    return true;
  }

  void take(std::span<const std::byte> bytes) {
    if (bytes_ && bytes.size() > *bytes_ - file_.size())
      throw FileError(fmt::format("{}: the server sends more than {} bytes", d_.what, *bytes_));
    const bool begins = file_.size() < 4;
    file_.append(bytes);
    fetched_ += bytes.size();
    if (begins && d_.is_gguf && file_.size() >= 4 && file_.beginning(4) != "GGUF") {
      const std::string start = file_.beginning(16);
      file_.clear();
      throw FileError(fmt::format("{}: what comes is not a GGUF file: it begins with {}", d_.what, quote(start)));
    }
    if (d_.on_bytes) d_.on_bytes(file_.size());
  }

  bool hash_fits() {
    last_hash_ = file_.sha256();
    return last_hash_ == lower(d_.sha256);
  }
  [[noreturn]] void refuse_hash() {
    file_.clear();
    throw FileError(
        fmt::format("{}: the file is damaged or another one: its SHA-256 is {}, and should be {}; it was removed, "
                    "try again",
                    d_.what, last_hash_, lower(d_.sha256)));
  }

  Client& client_;
  const Download& d_;
  PartialFile file_;
  std::string validator_, last_hash_;
  std::optional<std::uint64_t> bytes_;
  std::uint64_t fetched_ = 0;
  bool was_continued_ = false;
};

}  // namespace

std::uint64_t download(Client& client, const Download& each) { return Downloader(client, each).run(); }

}  // namespace weft::hub
