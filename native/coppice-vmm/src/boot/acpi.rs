//! ACPI tables of a hardware-reduced machine: processors, IOAPIC, COM1, virtio-mmio windows, power-off and reset.

use acpi_tables::fadt::{FADTBuilder, Flags};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic};
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use acpi_tables::xsdt::XSDT;
use acpi_tables::{Aml, aml};

use crate::devices::{
    COM1_GSI, COM1_PORT, COM1_PORTS, RESET_PORT, RESET_VALUE, SLEEP_CONTROL_PORT, SLEEP_STATUS_PORT, VIRTIO_BASE,
    VIRTIO_GSIS, WINDOW_BYTES,
};

/// Where the tables lie in guest memory; the RSDP is first.
pub const TABLES_START: u64 = 0xe_0000;
/// End of the area, which the memory map reserves.
pub const TABLES_END: u64 = 0x10_0000;

const OEM: [u8; 6] = *b"COPPIC";
const TABLE: [u8; 8] = *b"COPPICE ";
const REVISION: u32 = 1;
/// Bytes that the RSDP's place takes.
const RSDP_BYTES: u64 = 64;

const LOCAL_APIC: u32 = 0xfee0_0000;
const IO_APIC: u32 = 0xfec0_0000;

/// FADT boot architecture flags: no VGA, no CMOS clock; the 8042 bit stays clear.
const NO_VGA_NO_CMOS: u16 = 1 << 2 | 1 << 5;

/// Sleep type of S5 in the sleep control register; any value will do, as there is no other sleep state.
const SLEEP_TYPE_OFF: u8 = 5;

/// All tables as they lie from `TABLES_START` on.
pub fn tables(vcpus: u8, virtio_devices: usize) -> Vec<u8> {
    let mut bytes = vec![0; RSDP_BYTES as usize];
    let dsdt = append(&mut bytes, &dsdt(virtio_devices));
    let fadt = append(&mut bytes, &fadt(dsdt).finalize());
    let madt = append(&mut bytes, &madt(vcpus));
    let mut xsdt = XSDT::new(OEM, TABLE, REVISION);
    xsdt.add_entry(fadt);
    xsdt.add_entry(madt);
    let xsdt = append(&mut bytes, &xsdt);
    let rsdp = serialize(&Rsdp::new(OEM, xsdt));
    bytes[..rsdp.len()].copy_from_slice(&rsdp);
    bytes
}

/// Appends a table at the next multiple of 16; its guest address.
fn append(bytes: &mut Vec<u8>, table: &dyn Aml) -> u64 {
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    let address = TABLES_START + bytes.len() as u64;
    table.to_aml_bytes(bytes);
    address
}

fn serialize(table: &dyn Aml) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.to_aml_bytes(&mut bytes);
    bytes
}

fn fadt(dsdt: u64) -> FADTBuilder {
    let port = |port: u16| GAS::new(AddressSpace::SystemIo, 8, 0, AccessSize::ByteAccess, port.into());
    let mut fadt = FADTBuilder::new(OEM, TABLE, REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::Wbinvd)
        .flag(Flags::ResetRegSup);
    fadt.iapc_boot_arch = NO_VGA_NO_CMOS.into();
    fadt.reset_reg = port(RESET_PORT);
    fadt.reset_value = RESET_VALUE;
    fadt.sleep_control_reg = port(SLEEP_CONTROL_PORT);
    fadt.sleep_status_reg = port(SLEEP_STATUS_PORT);
    fadt
}

fn madt(vcpus: u8) -> MADT {
    let mut madt = MADT::new(OEM, TABLE, REVISION, LocalInterruptController::Address(LOCAL_APIC));
    for id in 0..vcpus {
        madt.add_structure(ProcessorLocalApic::new(id, id, EnabledStatus::Enabled));
    }
    madt.add_structure(IoApic::new(0, IO_APIC, 0));
    madt
}

fn dsdt(virtio_devices: usize) -> Sdt {
    let mut aml = Vec::new();
    serial_device(&mut aml);
    for (index, gsi) in VIRTIO_GSIS.iter().take(virtio_devices).enumerate() {
        virtio_device(&mut aml, index as u64, *gsi);
    }
    let sleep_type = SLEEP_TYPE_OFF;
    aml::Name::new("_S5_".into(), &aml::Package::new(vec![&sleep_type])).to_aml_bytes(&mut aml);
    let mut dsdt = Sdt::new(*b"DSDT", 36, 2, OEM, TABLE, REVISION);
    dsdt.append_slice(&aml);
    dsdt
}

/// Must be described: a hardware-reduced machine has no legacy interrupts, so ttyS0 would have none.
fn serial_device(into: &mut Vec<u8>) {
    let edge_high = aml::Interrupt::new(true, true, false, false, COM1_GSI);
    let ports = aml::IO::new(COM1_PORT, COM1_PORT, 1, COM1_PORTS as u8);
    aml::Device::new(
        "_SB_.COM1".into(),
        vec![
            &aml::Name::new("_HID".into(), &aml::EISAName::new("PNP0501")),
            &aml::Name::new("_UID".into(), &aml::ZERO),
            &aml::Name::new("_CRS".into(), &aml::ResourceTemplate::new(vec![&ports, &edge_high])),
        ],
    )
    .to_aml_bytes(into);
}

fn virtio_device(into: &mut Vec<u8>, index: u64, gsi: u32) {
    // Edge, so that the guest's end of interrupt is a note in its memory (KVM's PV EOI) instead of an exit. Nothing is
    // lost: the driver acknowledges, which lowers the line, before it looks at its queues.
    let edge_high = aml::Interrupt::new(true, true, false, false, gsi);
    let window = aml::Memory32Fixed::new(true, (VIRTIO_BASE + index * WINDOW_BYTES) as u32, WINDOW_BYTES as u32);
    aml::Device::new(
        aml::Path::new(&format!("_SB_.VIO{index}")),
        vec![
            &aml::Name::new("_HID".into(), &"LNRO0005"),
            &aml::Name::new("_UID".into(), &index),
            &aml::Name::new("_CRS".into(), &aml::ResourceTemplate::new(vec![&window, &edge_high])),
        ],
    )
    .to_aml_bytes(into);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_at(bytes: &[u8], address: u64) -> &[u8] {
        let start = (address - TABLES_START) as usize;
        let length = u32::from_le_bytes(bytes[start + 4..start + 8].try_into().unwrap()) as usize;
        &bytes[start..start + length]
    }

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    fn address(bytes: &[u8], offset: usize) -> u64 {
        u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap())
    }

    #[test]
    fn tables_have_valid_checksums_and_lie_in_the_reserved_area() {
        let bytes = tables(1, 3);
        assert!(TABLES_START + bytes.len() as u64 <= TABLES_END);
        assert_eq!(&bytes[..8], b"RSD PTR ");
        assert_eq!((sum(&bytes[..20]), sum(&bytes[..36])), (0, 0));

        let xsdt = table_at(&bytes, address(&bytes, 24));
        assert_eq!((&xsdt[..4], sum(xsdt)), (&b"XSDT"[..], 0));
        let (fadt, madt) = (table_at(&bytes, address(xsdt, 36)), table_at(&bytes, address(xsdt, 44)));
        assert_eq!((&fadt[..4], sum(fadt)), (&b"FACP"[..], 0));
        assert_eq!((&madt[..4], sum(madt)), (&b"APIC"[..], 0));
        let dsdt = table_at(&bytes, address(fadt, 140));
        assert_eq!((&dsdt[..4], sum(dsdt)), (&b"DSDT"[..], 0));
    }

    #[test]
    fn madt_lists_one_local_apic_a_vcpu() {
        let size = |vcpus| serialize(&madt(vcpus)).len();
        assert_eq!(size(4) - size(1), 3 * 8);
    }

    #[test]
    fn dsdt_names_every_device() {
        let bytes = serialize(&dsdt(3));
        let holds = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        for name in [&b"COM1"[..], b"VIO0", b"VIO1", b"LNRO0005", b"_S5_"] {
            assert!(holds(name), "{}", String::from_utf8_lossy(name));
        }
    }
}
