#include <fmt/format.h>

#include "parallel/team.hpp"
#include "weft/error.hpp"
#include "weft/parallel.hpp"

namespace weft::parallel {

void run(std::span<const Device> devices, const std::function<void(Member&)>& work) {
  if (devices.empty()) throw UsageError("parallel::run: no devices; name at least one");
  const auto group = std::make_shared<Group>(static_cast<int>(devices.size()));
  Team team(group, devices, 0, [&](int rank) {
    Member member(group, rank);
    work(member);
  });
  team.join();
}

std::vector<Device> parse_devices(std::string_view text) {
  std::vector<Device> devices;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin && !devices.empty())
      throw UsageError(fmt::format("devices \"{}\": an empty name; write them as in webgpu:0,webgpu:1", text));
    devices.push_back(parse_device(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return devices;
}

}  // namespace weft::parallel
