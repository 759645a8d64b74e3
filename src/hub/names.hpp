// Names that come from users and from servers, checked before they become addresses or paths.
#pragma once

#include <string>
#include <string_view>

namespace weft::hub {

/// The hub that is asked if HF_ENDPOINT does not name another.
inline constexpr std::string_view kPublicHub = "https://huggingface.co";

/// Whether a name of a server may become a path below a folder: no "..", no beginning "/", no empty parts, no backslashes or
/// control characters, UTF-8, and not too long.
bool is_safe_file_name(std::string_view name);
/// Whether it is a commit: 40 hexadecimal digits.
bool is_commit(std::string_view text);
/// Whether it may name a blob: letters, digits, and ".", "_", "-" but not first.
bool is_blob_name(std::string_view text);
/// Whether it is OWNER/NAME, or a NAME of the hub's first years.
bool is_repository(std::string_view text);
bool is_revision(std::string_view text);

/// The bytes that may not be in a path of an address as %XX. Slashes stay, unless `slashes` is false.
std::string escaped(std::string_view text, bool slashes = true);
/// Lower-case ASCII letters.
std::string lower(std::string_view text);
/// "93.2 MB", "1.24 GB".
std::string bytes_text(std::uint64_t bytes);

/// "https://host:port" in lower case of an address, with the port if it is not the usual one; empty if it is not http(s) or has a user.
std::string origin_of(std::string_view address);
/// Whether the origin is this machine: localhost, 127.0.0.1 or [::1].
bool is_this_machine(std::string_view origin);

}  // namespace weft::hub
