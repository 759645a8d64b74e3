#include "kernels/vulkan_host.hpp"

#define VK_NO_PROTOTYPES
#include <dlfcn.h>
#include <vulkan/vulkan.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace weft::test {
namespace {

using nlohmann::json;

void check(VkResult result, const char* what) {
  if (result != VK_SUCCESS) throw std::runtime_error(std::string(what) + " gave " + std::to_string(result));
}

PFN_vkGetInstanceProcAddr entry() {
  static void* const library = dlopen("libvulkan.so.1", RTLD_NOW);
  return library ? reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr")) : nullptr;
}

#define WEFT_VULKAN_FUNCTIONS(f)                                                                                      \
  f(DestroyInstance) f(EnumeratePhysicalDevices) f(GetPhysicalDeviceProperties2) f(GetPhysicalDeviceMemoryProperties) \
      f(CreateDevice) f(DestroyDevice) f(GetDeviceQueue) f(CreateBuffer) f(GetBufferMemoryRequirements)               \
          f(AllocateMemory) f(BindBufferMemory) f(MapMemory) f(CreateShaderModule) f(CreateDescriptorSetLayout)       \
              f(CreatePipelineLayout) f(CreateComputePipelines) f(CreateDescriptorPool) f(DestroyDescriptorPool)      \
                  f(AllocateDescriptorSets) f(UpdateDescriptorSets) f(CreateCommandPool) f(AllocateCommandBuffers)    \
                      f(BeginCommandBuffer) f(EndCommandBuffer) f(CmdBindPipeline) f(CmdBindDescriptorSets)           \
                          f(CmdDispatch) f(QueueSubmit) f(QueueWaitIdle)

/// What it makes lives until the process ends, as this is a program for tests: one after another, and small.
class Host {
 public:
  Host() {
    if (!entry()) throw std::runtime_error("there is no libvulkan.so.1");
    const auto create = reinterpret_cast<PFN_vkCreateInstance>(entry()(nullptr, "vkCreateInstance"));
    VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
    application.apiVersion = VK_API_VERSION_1_1;
    VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    info.pApplicationInfo = &application;
    check(create(&info, nullptr, &instance_), "vkCreateInstance");
#define WEFT_VULKAN_FIND(name) name = reinterpret_cast<PFN_vk##name>(entry()(instance_, "vk" #name));
    WEFT_VULKAN_FUNCTIONS(WEFT_VULKAN_FIND)
#undef WEFT_VULKAN_FIND
    std::uint32_t count = 1;
    EnumeratePhysicalDevices(instance_, &count, &physical_);
    if (count == 0) throw std::runtime_error("there is no Vulkan device");
    const float priority = 1;
    VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
    queue.queueCount = 1, queue.pQueuePriorities = &priority;
    VkDeviceCreateInfo device{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
    device.queueCreateInfoCount = 1, device.pQueueCreateInfos = &queue;
    check(CreateDevice(physical_, &device, nullptr, &device_), "vkCreateDevice");
    GetDeviceQueue(device_, 0, 0, &queue_);
    VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    VkCommandPool commands{};
    check(CreateCommandPool(device_, &pool, nullptr, &commands), "vkCreateCommandPool");
    VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    allocate.commandPool = commands, allocate.commandBufferCount = 1;
    check(AllocateCommandBuffers(device_, &allocate, &commands_), "vkAllocateCommandBuffers");
  }

  struct Memory {
    VkBuffer buffer{};
    std::byte* bytes = nullptr;
    std::size_t size = 0;
  };
  /// Mapped memory, of zeros.
  Memory memory(std::size_t size) {
    Memory made{.size = size};
    VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    info.size = size, info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
    check(CreateBuffer(device_, &info, nullptr, &made.buffer), "vkCreateBuffer");
    VkMemoryRequirements needs{};
    GetBufferMemoryRequirements(device_, made.buffer, &needs);
    VkPhysicalDeviceMemoryProperties properties{};
    GetPhysicalDeviceMemoryProperties(physical_, &properties);
    constexpr VkMemoryPropertyFlags kWanted =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
    allocate.allocationSize = needs.size;
    while ((needs.memoryTypeBits >> allocate.memoryTypeIndex & 1) == 0 ||
           (properties.memoryTypes[allocate.memoryTypeIndex].propertyFlags & kWanted) != kWanted)
      if (++allocate.memoryTypeIndex == properties.memoryTypeCount) throw std::runtime_error("no memory can be mapped");
    VkDeviceMemory held{};
    check(AllocateMemory(device_, &allocate, nullptr, &held), "vkAllocateMemory");
    check(BindBufferMemory(device_, made.buffer, held, 0), "vkBindBufferMemory");
    void* mapped = nullptr;
    check(MapMemory(device_, held, 0, VK_WHOLE_SIZE, 0, &mapped), "vkMapMemory");
    made.bytes = static_cast<std::byte*>(mapped);
    std::memset(made.bytes, 0, size);
    return made;
  }

  struct Kernel {
    VkDescriptorSetLayout set{};
    VkPipelineLayout layout{};
    VkPipeline pipeline{};
    std::uint32_t bindings = 0;
  };
  Kernel kernel(const std::vector<std::uint32_t>& spirv, const std::string& entry_point,
                const std::vector<std::uint32_t>& bindings) {
    Kernel made{.bindings = static_cast<std::uint32_t>(bindings.size())};
    VkShaderModuleCreateInfo module{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
    module.codeSize = 4 * spirv.size(), module.pCode = spirv.data();
    VkShaderModule shader{};
    check(CreateShaderModule(device_, &module, nullptr, &shader), "vkCreateShaderModule");
    std::vector<VkDescriptorSetLayoutBinding> places;
    for (const std::uint32_t binding : bindings)
      places.push_back({binding, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr});
    VkDescriptorSetLayoutCreateInfo set{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO};
    set.bindingCount = made.bindings, set.pBindings = places.data();
    check(CreateDescriptorSetLayout(device_, &set, nullptr, &made.set), "vkCreateDescriptorSetLayout");
    VkPipelineLayoutCreateInfo layout{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
    layout.setLayoutCount = 1, layout.pSetLayouts = &made.set;
    check(CreatePipelineLayout(device_, &layout, nullptr, &made.layout), "vkCreatePipelineLayout");
    VkComputePipelineCreateInfo info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
    info.layout = made.layout;
    info.stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO};
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT, info.stage.module = shader, info.stage.pName = entry_point.c_str();
    check(CreateComputePipelines(device_, VK_NULL_HANDLE, 1, &info, nullptr, &made.pipeline),
          "vkCreateComputePipelines");
    return made;
  }

  std::uint32_t subgroup_size() const {
    VkPhysicalDeviceSubgroupProperties subgroups{};
    subgroups.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    properties.pNext = &subgroups;
    GetPhysicalDeviceProperties2(physical_, &properties);
    return subgroups.subgroupSize;
  }

  /// Waits for the end.
  void dispatch(const Kernel& kernel, const std::vector<VkDescriptorBufferInfo>& buffers,
                const std::uint32_t (&groups)[3]) {
    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, kernel.bindings};
    VkDescriptorPoolCreateInfo pool_info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
    pool_info.maxSets = 1, pool_info.poolSizeCount = 1, pool_info.pPoolSizes = &size;
    VkDescriptorPool pool{};
    check(CreateDescriptorPool(device_, &pool_info, nullptr, &pool), "vkCreateDescriptorPool");
    VkDescriptorSetAllocateInfo allocate{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO};
    allocate.descriptorPool = pool, allocate.descriptorSetCount = 1, allocate.pSetLayouts = &kernel.set;
    VkDescriptorSet set{};
    check(AllocateDescriptorSets(device_, &allocate, &set), "vkAllocateDescriptorSets");
    std::vector<VkWriteDescriptorSet> writes;
    for (std::uint32_t i = 0; i < kernel.bindings; ++i)
      writes.push_back({VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET, nullptr, set, i, 0, 1,
                        VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, nullptr, &buffers[i], nullptr});
    UpdateDescriptorSets(device_, kernel.bindings, writes.data(), 0, nullptr);
    const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    check(BeginCommandBuffer(commands_, &begin), "vkBeginCommandBuffer");
    CmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    CmdBindDescriptorSets(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1, &set, 0, nullptr);
    CmdDispatch(commands_, groups[0], groups[1], groups[2]);
    check(EndCommandBuffer(commands_), "vkEndCommandBuffer");
    VkSubmitInfo submit{VK_STRUCTURE_TYPE_SUBMIT_INFO};
    submit.commandBufferCount = 1, submit.pCommandBuffers = &commands_;
    check(QueueSubmit(queue_, 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit");
    check(QueueWaitIdle(queue_), "vkQueueWaitIdle");
    DestroyDescriptorPool(device_, pool, nullptr);
  }

 private:
#define WEFT_VULKAN_DECLARE(name) PFN_vk##name name{};
  WEFT_VULKAN_FUNCTIONS(WEFT_VULKAN_DECLARE)
#undef WEFT_VULKAN_DECLARE
  VkInstance instance_{};
  VkPhysicalDevice physical_{};
  VkDevice device_{};
  VkQueue queue_{};
  VkCommandBuffer commands_{};
};

Host& host() {
  static Host made;
  return made;
}

std::vector<char> content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path.string() + " cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

bool has_vulkan_device() {
  try {
    host();
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

std::uint32_t subgroup_size() { return host().subgroup_size(); }

std::map<std::string, std::vector<std::byte>> run_manifest(const std::filesystem::path& directory) {
  const json manifest = json::parse(content(directory / "manifest.json"));
  const std::vector<char> data = content(directory / manifest["data"].get<std::string>());
  std::vector<Host::Memory> buffers;
  for (const json& buffer : manifest["buffers"]) buffers.push_back(host().memory(buffer["bytes"]));
  std::vector<Host::Kernel> kernels;
  for (const json& kernel : manifest["kernels"]) {
    const std::vector<char> file = content(directory / kernel["file"].get<std::string>());
    std::vector<std::uint32_t> spirv(file.size() / 4);
    std::memcpy(spirv.data(), file.data(), 4 * spirv.size());
    std::vector<std::uint32_t> bindings;
    for (const json& binding : kernel["bindings"]) bindings.push_back(binding["binding"]);
    kernels.push_back(host().kernel(spirv, kernel["entry_point"], bindings));
  }
  for (const json& step : manifest["steps"]) {
    if (step.contains("write")) {
      const json& write = step["write"];
      const Host::Memory& to = buffers.at(write["buffer"].get<std::size_t>());
      const std::size_t offset = write["offset"], bytes = write["bytes"], from = write["data_offset"];
      if (offset + bytes > to.size || from + bytes > data.size()) throw std::runtime_error("a write beyond a buffer");
      std::memcpy(to.bytes + offset, data.data() + from, bytes);
      continue;
    }
    const json& dispatch = step["dispatch"];
    std::vector<VkDescriptorBufferInfo> ranges;
    for (const json& range : dispatch["buffers"]) {
      const Host::Memory& of = buffers.at(range["buffer"].get<std::size_t>());
      if (range["offset"].get<std::size_t>() + range["bytes"].get<std::size_t>() > of.size)
        throw std::runtime_error("a binding beyond its buffer");
      ranges.push_back({of.buffer, range["offset"], range["bytes"]});
    }
    const json& groups = dispatch["workgroups"];
    host().dispatch(kernels.at(dispatch["kernel"].get<std::size_t>()), ranges, {groups[0], groups[1], groups[2]});
  }
  std::map<std::string, std::vector<std::byte>> results;
  for (const json& output : manifest["outputs"]) {
    const Host::Memory& buffer = buffers.at(output["buffer"].get<std::size_t>());
    results[output["name"]] = {buffer.bytes, buffer.bytes + buffer.size};
  }
  return results;
}

}  // namespace weft::test
