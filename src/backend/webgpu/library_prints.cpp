#include "backend/webgpu/library_prints.hpp"

#include "base/log.hpp"

#if defined(__linux__) && defined(__LP64__)

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace weft::webgpu {
namespace {

// The library calls this function instead of fprintf.
int log_instead(std::FILE* stream, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  int length = 0;
  if (stream != stdout && stream != stderr) {
    length = std::vfprintf(stream, format, arguments);
  } else if (is_logging()) {
    char* text = nullptr;
    length = vasprintf(&text, format, arguments);
    if (length >= 0) {
      std::string_view message(text, static_cast<std::size_t>(length));
      while (message.ends_with('\n')) message.remove_suffix(1);
      LogLevel level = LogLevel::info;
      for (const LogLevel each : {LogLevel::warning, LogLevel::error}) {
        const std::string_view prefix = each == LogLevel::warning ? "Warning: " : "Error: ";
        if (!message.starts_with(prefix)) continue;
        message.remove_prefix(prefix.size());
        level = each;
      }
      log(level, "webgpu", message);
      std::free(text);
    }
  }
  va_end(arguments);
  return length;
}

// A loaded library by the entries of its dynamic section.
struct Image {
  ElfW(Addr) base;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * tables[2] = {};  // of calls, and of other places
  std::size_t counts[2] = {};
};

Image read_image(const link_map& map) {
  Image image{map.l_addr};
  // glibc has made addresses of most of these; other loaders leave them relative.
  const auto at = [&](ElfW(Addr) address) { return address < map.l_addr ? address + map.l_addr : address; };
  bool has_addends = true;
  for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_SYMTAB: image.symbols = reinterpret_cast<const ElfW(Sym)*>(at(entry->d_un.d_ptr)); break;
      case DT_STRTAB: image.names = reinterpret_cast<const char*>(at(entry->d_un.d_ptr)); break;
      case DT_JMPREL: image.tables[0] = reinterpret_cast<const ElfW(Rela)*>(at(entry->d_un.d_ptr)); break;
      case DT_PLTRELSZ: image.counts[0] = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
      case DT_PLTREL: has_addends = entry->d_un.d_val == DT_RELA; break;
      case DT_RELA: image.tables[1] = reinterpret_cast<const ElfW(Rela)*>(at(entry->d_un.d_ptr)); break;
      case DT_RELASZ: image.counts[1] = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
      default: break;
    }
  }
  if (!has_addends || !image.symbols || !image.names) image.counts[0] = image.counts[1] = 0;
  return image;
}

struct AddressRange {
  ElfW(Addr) begin = 0, end = 0;
};

// The range that the loader made read-only after it had filled it in.
AddressRange sealed_part(ElfW(Addr) base) {
  struct Search {
    ElfW(Addr) base;
    AddressRange found;
  } search{base, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* user) {
        auto& wanted = *static_cast<Search*>(user);
        if (info->dlpi_addr != wanted.base) return 0;
        const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& header = info->dlpi_phdr[i];
          if (header.p_type != PT_GNU_RELRO) continue;
          const ElfW(Addr) begin = info->dlpi_addr + header.p_vaddr;
          wanted.found = {begin & ~(page - 1), (begin + header.p_memsz) & ~(page - 1)};
        }
        return 1;
      },
      &search);
  return search.found;
}

}  // namespace

void take_prints(const void* function) {
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(function, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || !map) return;
  const Image image = read_image(*map);
  const AddressRange sealed = sealed_part(image.base);
  for (int table = 0; table < 2; ++table)
    for (std::size_t i = 0; image.tables[table] && i < image.counts[table]; ++i) {
      const ElfW(Rela)& place = image.tables[table][i];
      const auto symbol = ELF64_R_SYM(place.r_info);
      if (symbol == 0 || std::strcmp(image.names + image.symbols[symbol].st_name, "fprintf") != 0) continue;
      const ElfW(Addr) slot = image.base + place.r_offset;
      const bool is_sealed = slot >= sealed.begin && slot < sealed.end;
      void* const pages = reinterpret_cast<void*>(sealed.begin);
      if (is_sealed && mprotect(pages, sealed.end - sealed.begin, PROT_READ | PROT_WRITE) != 0) return;
      *reinterpret_cast<decltype(&log_instead)*>(slot) = &log_instead;
      if (is_sealed) mprotect(pages, sealed.end - sealed.begin, PROT_READ);
    }
}

}  // namespace weft::webgpu

#else

namespace weft::webgpu {
void take_prints(const void*) {}
}  // namespace weft::webgpu

#endif
