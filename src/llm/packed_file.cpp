#include "llm/packed_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#if defined(__linux__)
#include <sys/resource.h>
#include <unistd.h>
#endif

#include "backend/contract.hpp"
#include "base/cache_folder.hpp"
#include "base/threads.hpp"
#include "base/xxh64.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTitle = "weft packed weights 2\n", kModel = "model ", kExtension = ".packed";
constexpr std::size_t kPage = 4096, kLine = 64;
// Written in one call, so that a system with large pages in its page cache uses them. Flushed after each piece, so that
// little is left to flush at the end, and a writer can give up in between.
constexpr std::size_t kWriteBytes = std::size_t{64} << 20;

// Bytes that one digest covers: those of a file are checked by several threads.
constexpr std::size_t kDigestedBytes = std::size_t{4} << 20;

/// The digests of a file, in its order; then the digest of the digests. They follow the data that they cover.
class Digests {
 public:
  static std::size_t count_for(std::size_t bytes) { return (bytes + kDigestedBytes - 1) / kDigestedBytes + 1; }

  void add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(bytes.size(), kDigestedBytes - filled_));
      hash_.add(part);
      bytes = bytes.subspan(part.size());
      if ((filled_ += part.size()) == kDigestedBytes) end_part();
    }
  }
  std::vector<std::uint64_t> finish() {
    if (filled_ > 0) end_part();
    digests_.push_back(xxh64(std::as_bytes(std::span(digests_))));
    return std::move(digests_);
  }

  static bool fit(std::span<const std::byte> bytes, std::span<const std::byte> stored) {
    std::vector<std::uint64_t> found(count_for(bytes.size()));
    if (stored.size() != found.size() * sizeof(std::uint64_t)) return false;
    parallel_for(static_cast<std::int64_t>(found.size()) - 1, [&](std::int64_t part) {
      const std::size_t begin = static_cast<std::size_t>(part) * kDigestedBytes;
      found[static_cast<std::size_t>(part)] =
          xxh64(bytes.subspan(begin, std::min(kDigestedBytes, bytes.size() - begin)));
    });
    found.back() = xxh64(std::as_bytes(std::span(found).first(found.size() - 1)));
    return std::ranges::equal(std::as_bytes(std::span(found)), stored);
  }

 private:
  void end_part() {
    digests_.push_back(hash_.digest());
    hash_ = {};
    filled_ = 0;
  }
  Xxh64 hash_;
  std::size_t filled_ = 0;
  std::vector<std::uint64_t> digests_;
};

/// A lower priority than programs that compute: their threads wait for each other, so taking one processor delays all.
void lower_priority_of_thread() {
#if defined(__linux__)
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
#endif
}

/// The model that a packed file was made of, as its head says; nothing for files of others.
std::optional<fs::path> model_of(const fs::path& packed) {
  if (packed.extension() != kExtension) return std::nullopt;
  std::string head;
  try {
    const MappedFile file(packed, MappedFile::Trust::own);
    const auto bytes = file.bytes().first(std::min(file.bytes().size(), kPage));
    head.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } catch (const FileError&) {  // a pipe, a link, or of another user
    return std::nullopt;
  }
  const std::size_t begin = kTitle.size() + kModel.size(), end = head.find('\n', begin);
  if (!head.starts_with(kTitle) || head.compare(kTitle.size(), kModel.size(), kModel) != 0 || end == std::string::npos)
    return std::nullopt;
  return fs::path(head.substr(begin, end - begin));
}

/// Removes files of killed writers. A live writer has written to its file recently.
void remove_leftovers(const fs::path& folder) {
  for (const fs::path& path : find_leftovers(folder)) {
    std::error_code error;
    const auto written = fs::last_write_time(path, error);
    if (!error && fs::file_time_type::clock::now() - written > std::chrono::hours(1)) fs::remove(path, error);
  }
}

/// Removes old files until `bytes` more fit; false if they cannot fit.
bool make_room(const fs::path& folder, std::uint64_t bytes, double disk_share) {
  std::vector<fs::path> packed;
  std::uint64_t held = 0;
  for (const auto& [path, model] : packed_files(folder)) {
    std::error_code ignored;
    if (!fs::exists(model, ignored) && !ignored) {
      fs::remove(path, ignored);
      continue;
    }
    packed.push_back(path);
    if (const std::uint64_t size = fs::file_size(path, ignored); !ignored) held += size;
  }
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return false;
  const auto share = static_cast<std::uint64_t>(disk_share * static_cast<double>(space.capacity));
  const std::uint64_t most = std::min<std::uint64_t>(share, (space.available + held) / 2);
  if (bytes > most) return false;
  remove_oldest(packed, most - bytes);
  return true;
}

}  // namespace

PackedFileRules usual_packed_files() {
  const fs::path folder = default_cache_folder();
  return {.folder = folder.empty() ? folder : folder / "packed"};
}

std::vector<std::pair<fs::path, fs::path>> packed_files(const fs::path& folder) {
  std::vector<std::pair<fs::path, fs::path>> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (auto model = model_of(it->path())) files.emplace_back(it->path(), *std::move(model));
  return files;
}

std::optional<PackedFile> PackedFile::of(std::span<const MappedFile> model, std::span<const PackedPart> parts,
                                         const PackedFileRules& rules, Device device) {
  if (rules.folder.empty() || model.empty()) return std::nullopt;
  const backend::WeightPacking& packing = *weight_packing(device);
  PackedFile file;
  file.device_ = device;
  file.disk_share_ = rules.disk_share;
  std::string matrices;
  std::set<BlockType> types;
  std::size_t bytes = 0;
  for (const PackedPart& part : parts) {
    file.parts_.push_back({part.type, part.shape, bytes});
    bytes += packing.packed_bytes(part.type, part.shape.numel() / part.shape.back(), part.shape.back());
    bytes = (bytes + kLine - 1) / kLine * kLine;
    matrices += fmt::format("{} {} {}\n", part.tensor, name_of(part.type), part.shape.to_string());
    types.insert(part.type);
  }
  if (bytes < rules.bytes_min) return std::nullopt;

  std::int64_t newest = 0;
  std::string files, names;
  for (const MappedFile& each : model) {
    std::error_code error;
    const fs::path path = fs::canonical(each.path(), error);
    if (error) return std::nullopt;
    const FileStamp& stamp = each.stamp();
    files += fmt::format("file {} bytes, node {}, modified {}, changed {}: {}\n", stamp.bytes, stamp.node,
                         stamp.modified, stamp.changed, path.string());
    names += path.string() + '\n';
    newest = std::max({newest, stamp.modified, stamp.changed});
    file.model_.emplace_back(path, stamp);
  }
  const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  file.settled_ = now.count() - newest >= rules.settled.count();

  std::string layout;
  for (const BlockType type : types)
    layout += fmt::format("layout of {}: {:016x}\n", name_of(type), packing.layout_digest(type));
  const fs::path& first = file.model_.front().first;
  file.head_ = fmt::format("{}{}{}\n{}{} matrices in {} bytes: {:016x}\n{}", kTitle, kModel, first.string(), files,
                           parts.size(), bytes, xxh64(matrices), layout);
  file.head_.resize((file.head_.size() + kPage - 1) / kPage * kPage);
  for (Part& part : file.parts_) part.at += file.head_.size();
  file.covered_ = file.head_.size() + bytes;
  file.bytes_ = file.covered_ + Digests::count_for(file.covered_) * sizeof(std::uint64_t);
  file.path_ =
      rules.folder / fmt::format("{}-{:016x}{}", first.stem().string().substr(0, 100), xxh64(names), kExtension);
  return file;
}

bool PackedFile::open() {
  try {
    const auto mapped = std::make_shared<const MappedFile>(path_, MappedFile::Trust::own);
    if (mapped->bytes().size() != bytes_ ||
        !std::ranges::equal(mapped->bytes().first(head_.size()), std::as_bytes(std::span(head_))))
      return false;
    expect_pages(*mapped);
    if (!Digests::fit(mapped->bytes().first(covered_), mapped->bytes().subspan(covered_))) return false;
    mapped_ = mapped;
  } catch (const FileError&) {
    return false;
  }
  // Marks the file as used, so that the least used files are removed first. Fails silently in read-only folders.
  std::error_code ignored;
  fs::last_write_time(path_, fs::file_time_type::clock::now(), ignored);
  return true;
}

Tensor PackedFile::matrix(std::size_t part) const {
  const Part& p = parts_.at(part);
  return matrix_over(p.type, p.shape, mapped_->bytes().subspan(p.at), mapped_, device_);
}

bool PackedFile::is_current() const {
  return std::all_of(model_.begin(), model_.end(),
                     [](const auto& file) { return stamp_of(file.first) == file.second; });
}

void PackedFile::write(std::span<const Tensor> matrices, const std::stop_token& stop) const {
  if (!settled_) return;
  try {
    if (!make_private_folder(path_.parent_path())) return;
    fs::remove(path_);  // it does not belong to the present state of this model
    remove_leftovers(path_.parent_path());
    if (!make_room(path_.parent_path(), bytes_, disk_share_)) return;
    AtomicFile file(path_, {.expected_bytes = bytes_, .mode = 0600});
    Digests digests;
    const auto write = [&](std::span<const std::byte> bytes) {
      digests.add(bytes);
      file.write(bytes);
    };
    write(std::as_bytes(std::span(head_)));
    // Matrices that are adjacent in memory are written together.
    for (std::size_t i = 0; i < matrices.size();) {
      std::span<const std::byte> run = packed_bytes(matrices[i]);
      if (file.bytes_written() != parts_[i].at) throw InternalError("llm: packed matrices do not follow each other");
      for (++i; i < matrices.size() && packed_bytes(matrices[i]).data() == run.data() + run.size(); ++i)
        run = {run.data(), run.size() + packed_bytes(matrices[i]).size()};
      while (!run.empty()) {
        if (stop.stop_requested()) return;
        const auto part = run.first(std::min(run.size(), kWriteBytes));
        write(part);
        if (part.size() == kWriteBytes) file.sync();
        run = run.subspan(part.size());
      }
    }
    const std::vector<std::uint64_t> sums = digests.finish();
    file.write(std::as_bytes(std::span(sums)));
    if (is_current()) file.commit();
  } catch (const FileError&) {  // a model loads without it too
  } catch (const fs::filesystem_error&) {
  }
}

PackedFileWriter::PackedFileWriter(PackedFile file, std::vector<Tensor> matrices, std::chrono::milliseconds patience)
    : patience_(patience),
      done_(std::async(std::launch::async, [file = std::move(file), matrices = std::move(matrices),
                                            stop = stop_.get_token(), end = end_.get_future()] {
        end.wait_for(std::chrono::milliseconds(500));
        lower_priority_of_thread();
        file.write(matrices, stop);
      })) {}

PackedFileWriter::~PackedFileWriter() {
  end_.set_value();
  if (done_.wait_for(patience_) != std::future_status::ready) stop_.request_stop();
  done_.wait();
}

}  // namespace weft::llm
