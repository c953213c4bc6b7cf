//! What CPUID says of how vCPUs belong together: one package, in which each is a core of its own. Where it is the host's,
//! or says nothing, kernels come to odd conclusions about which processors share what.

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

use crate::kvm::KvmError;
use crate::kvm::cpuid::{EXTENDED_FEATURES, FEATURES, TOPOLOGY, TOPOLOGY_V2};

const CACHES: u32 = 0x4;
const SIZES_AMD: u32 = 0x8000_0008;
const CACHES_AMD: u32 = 0x8000_001d;
const TOPOLOGY_AMD: u32 = 0x8000_001e;

/// More than one logical processor in the package.
const EDX_HYPER_THREADING: u32 = 1 << 28;
/// On AMD: they are cores, not threads of one.
const ECX_LEGACY_MULTI_CORE: u32 = 1 << 1;

const CACHE_TYPES: u32 = 0x1f;
/// The last-level cache, which all cores share.
const SHARED_LEVEL: u32 = 3;
// Fields of the cache leaves: processors that share the cache, and on Intel cores of the package, both less one.
const SHARERS: u32 = 0x03ff_c000;
const SHARERS_SHIFT: u32 = 14;
const CORES: u32 = 0xfc00_0000;
const CORES_SHIFT: u32 = 26;

// Types of the levels in leaf 0xb.
const THREADS: u32 = 1 << 8;
const PROCESSORS: u32 = 2 << 8;

/// As `cpuid::for_vcpu`, for machines with several.
pub fn for_vcpu(cpuid: &CpuId, id: u8, vcpus: u8) -> Result<CpuId, KvmError> {
    let place = Place::new(id, vcpus);
    let mut entries: Vec<_> = cpuid
        .as_slice()
        .iter()
        .filter(|entry| !matches!(entry.function, TOPOLOGY | TOPOLOGY_V2))
        .copied()
        .collect();
    let is_amd = is_amd(&entries);
    entries.iter_mut().for_each(|entry| place.adjust(entry, is_amd));
    // Only where the host has the leaf may the guest's highest leaf be above it.
    if cpuid.as_slice().iter().any(|entry| entry.function == TOPOLOGY) {
        entries.extend(place.levels());
    }
    Ok(CpuId::from_entries(&entries)?)
}

fn is_amd(entries: &[kvm_cpuid_entry2]) -> bool {
    const AUTH: u32 = u32::from_le_bytes(*b"Auth");
    const HYGON: u32 = u32::from_le_bytes(*b"Hygo");
    entries
        .iter()
        .any(|entry| entry.function == 0 && matches!(entry.ebx, AUTH | HYGON))
}

/// One vCPU among the others.
struct Place {
    id: u32,
    vcpus: u32,
    /// Bits of an APIC id that tell the package's cores apart.
    bits: u32,
}

impl Place {
    fn new(id: u8, vcpus: u8) -> Self {
        Self {
            id: id.into(),
            vcpus: vcpus.into(),
            bits: u32::from(vcpus).next_power_of_two().trailing_zeros(),
        }
    }

    /// APIC ids of the package.
    fn ids(&self) -> u32 {
        1 << self.bits
    }

    fn adjust(&self, entry: &mut kvm_cpuid_entry2, is_amd: bool) {
        match entry.function {
            FEATURES => {
                entry.ebx = entry.ebx & 0x0000_ffff | self.ids() << 16 | self.id << 24;
                entry.edx |= EDX_HYPER_THREADING;
            }
            CACHES if entry.eax & CACHE_TYPES != 0 => {
                entry.eax = entry.eax & !(SHARERS | CORES) | self.sharers(entry) | (self.ids() - 1) << CORES_SHIFT;
            }
            CACHES_AMD if entry.eax & CACHE_TYPES != 0 => {
                entry.eax = entry.eax & !SHARERS | self.sharers(entry);
            }
            EXTENDED_FEATURES if is_amd => entry.ecx |= ECX_LEGACY_MULTI_CORE,
            SIZES_AMD if is_amd => entry.ecx = entry.ecx & !0xf0ff | (self.vcpus - 1) | self.bits << 12,
            // Id of the APIC, id of the core with one thread each, node 0 of 1.
            TOPOLOGY_AMD if is_amd => (entry.eax, entry.ebx, entry.ecx) = (self.id, self.id, 0),
            _ => {}
        }
    }

    fn sharers(&self, cache: &kvm_cpuid_entry2) -> u32 {
        match cache.eax >> 5 & 7 {
            SHARED_LEVEL => (self.ids() - 1) << SHARERS_SHIFT,
            _ => 0,
        }
    }

    /// Leaf 0xb: one thread a core, all cores in one package, and the end.
    fn levels(&self) -> [kvm_cpuid_entry2; 3] {
        [(0, 1, THREADS), (self.bits, self.vcpus, PROCESSORS), (0, 0, 0)].map({
            let mut index = 0;
            move |(shift, processors, kind)| {
                let entry = kvm_cpuid_entry2 {
                    function: TOPOLOGY,
                    index,
                    flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
                    eax: shift,
                    ebx: processors,
                    ecx: kind | index,
                    edx: self.id,
                    ..Default::default()
                };
                index += 1;
                entry
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(function: u32, value: u32) -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 {
            function,
            eax: value,
            ebx: value,
            ecx: value,
            edx: value,
            ..Default::default()
        }
    }

    fn of(entries: &[kvm_cpuid_entry2], id: u8, vcpus: u8) -> Vec<kvm_cpuid_entry2> {
        let cpuid = for_vcpu(&CpuId::from_entries(entries).unwrap(), id, vcpus).unwrap();
        cpuid.as_slice().to_vec()
    }

    fn amd() -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 {
            ebx: u32::from_le_bytes(*b"Auth"),
            ..Default::default()
        }
    }

    #[test]
    fn features_have_the_vcpus_id_and_the_number_of_ids() {
        let features = of(&[leaf(FEATURES, 0xffff_1234)], 2, 3)[0];
        assert_eq!(features.ebx, 0x0204_1234);
        assert_ne!(features.edx & EDX_HYPER_THREADING, 0);
    }

    #[test]
    fn extended_topology_is_replaced_by_one_package_of_cores() {
        let host = [leaf(TOPOLOGY, 77), leaf(TOPOLOGY_V2, 77)];
        let levels: Vec<_> = of(&host, 1, 4)
            .iter()
            .map(|entry| (entry.function, entry.index, entry.eax, entry.ebx, entry.ecx, entry.edx))
            .collect();
        assert_eq!(
            levels,
            [
                (TOPOLOGY, 0, 0, 1, 0x100, 1),
                (TOPOLOGY, 1, 2, 4, 0x201, 1),
                (TOPOLOGY, 2, 0, 0, 2, 1)
            ]
        );
        assert!(of(&[], 1, 4).is_empty(), "a host that does not have the leaf");
    }

    #[test]
    fn amd_leaves_name_the_cores_and_are_left_alone_elsewhere() {
        let host = [amd(), leaf(SIZES_AMD, 0xffff_ffff), leaf(TOPOLOGY_AMD, 0x55)];
        let [_, sizes, topology] = of(&host, 3, 4)[..] else {
            panic!()
        };
        assert_eq!(sizes.ecx, 0xffff_2f03);
        assert_eq!((topology.eax, topology.ebx, topology.ecx), (3, 3, 0));
        assert_eq!(of(&[leaf(SIZES_AMD, 7)], 3, 4)[0].ecx, 7);
    }

    #[test]
    fn last_level_cache_is_shared_and_others_are_a_cores_own() {
        let cache = |level: u32| leaf(CACHES, SHARERS | CORES | level << 5 | 1);
        let caches = of(&[cache(2), cache(3)], 0, 2);
        let fields = |entry: &kvm_cpuid_entry2| {
            (
                (entry.eax & SHARERS) >> SHARERS_SHIFT,
                (entry.eax & CORES) >> CORES_SHIFT,
            )
        };
        assert_eq!(caches.iter().map(fields).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
        let none = of(&[leaf(CACHES, SHARERS)], 0, 2)[0];
        assert_eq!(none.eax, SHARERS, "not a cache");
    }
}
