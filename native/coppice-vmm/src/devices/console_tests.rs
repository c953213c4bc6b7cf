//! The agent's channel: hand-shake, both directions, limits.

use coppice_wire::agent::AGENT_PORT_NAME;
use virtio_bindings::virtio_mmio::*;

use crate::devices::console::{Console, MAX_PENDING_BYTES};
use crate::devices::fixture::{Driver, HOLE, NEXT, WRITE};
use crate::devices::ring::Abuse;

const CONTROL_RX: usize = 2;
const CONTROL_TX: usize = 3;
const AGENT_RX: usize = 4;
const AGENT_TX: usize = 5;

const BUFFER: u64 = 0x8_0000;
const OUT: u64 = 0x9_0000;

fn control(driver: &mut Driver<Console>, port: u32, event: u16, value: u16) -> Result<(), Abuse> {
    driver.put(
        OUT,
        &[&port.to_le_bytes()[..], &event.to_le_bytes(), &value.to_le_bytes()].concat(),
    );
    driver.send(CONTROL_TX, &[(OUT, 8, 0, 0)])
}

/// Offers a buffer to the agent's receive queue.
fn offer(driver: &mut Driver<Console>, length: u32) {
    driver.table(AGENT_RX, &[(BUFFER, length, WRITE, 0)]);
    driver.offer(AGENT_RX, 0);
}

fn open() -> Driver<Console> {
    let mut driver = Driver::ready(Console::new());
    control(&mut driver, 1, 6, 1).unwrap();
    driver
}

fn push(driver: &mut Driver<Console>, payload: &[u8]) -> bool {
    let queued = driver.transport.device.push(payload);
    driver.transport.serve(AGENT_RX, &driver.memory).unwrap();
    queued
}

fn serve_waiting(driver: &mut Driver<Console>) {
    for queue in driver.transport.device.waiting_queues().into_iter().flatten() {
        driver.transport.serve(queue, &driver.memory).unwrap();
    }
}

/// Sends bytes as the guest does, in one buffer.
fn transmit(driver: &mut Driver<Console>, bytes: &[u8]) -> Result<(), Abuse> {
    driver.put(OUT, bytes);
    driver.send(AGENT_TX, &[(OUT, bytes.len() as u32, 0, 0)])
}

#[test]
fn hand_shake_announces_one_named_port_that_is_no_console() {
    let mut driver = Driver::ready(Console::new());
    driver.table(
        CONTROL_RX,
        &[
            (BUFFER, 64, WRITE, 0),
            (BUFFER + 64, 64, WRITE, 0),
            (BUFFER + 128, 64, WRITE, 0),
        ],
    );
    (0..3).for_each(|head| driver.offer(CONTROL_RX, head));

    control(&mut driver, 0, 0, 1).unwrap();
    assert_eq!(driver.used(CONTROL_RX), (1, 0, 8));
    assert_eq!(driver.bytes(BUFFER, 8), [1, 0, 0, 0, 1, 0, 1, 0], "port 1 is added");

    control(&mut driver, 1, 3, 1).unwrap();
    assert_eq!(driver.used(CONTROL_RX).0, 3);
    assert_eq!(driver.bytes(BUFFER + 64, 8), [1, 0, 0, 0, 7, 0, 1, 0], "it has a name");
    assert_eq!(
        driver.bytes(BUFFER + 72, AGENT_PORT_NAME.len()),
        AGENT_PORT_NAME.as_bytes()
    );
    assert_eq!(
        driver.bytes(BUFFER + 128, 8),
        [1, 0, 0, 0, 6, 0, 1, 0],
        "the host's side is open"
    );
}

#[test]
fn bytes_wait_until_the_guest_has_opened_the_port() {
    let mut driver = Driver::ready(Console::new());
    offer(&mut driver, 4096);
    assert!(push(&mut driver, b"hello"));
    assert_eq!(driver.used(AGENT_RX).0, 0);
    control(&mut driver, 1, 6, 1).unwrap();
    assert_eq!(driver.used(AGENT_RX), (1, 0, 9));
    assert_eq!(driver.bytes(BUFFER, 9), b"\x05\0\0\0hello");
    assert!(driver.transport.line());
}

#[test]
fn payload_larger_than_the_buffers_goes_on_with_the_next_ones() {
    let mut driver = open();
    offer(&mut driver, 6);
    push(&mut driver, b"hello");
    assert_eq!(driver.bytes(BUFFER, 6), b"\x05\0\0\0he");
    offer(&mut driver, 6);
    driver.kick(AGENT_RX).unwrap();
    assert_eq!(driver.used(AGENT_RX), (2, 0, 3));
    assert_eq!(driver.bytes(BUFFER, 3), b"llo");
}

#[test]
fn closing_the_port_drops_what_its_opener_did_not_read() {
    let mut driver = open();
    push(&mut driver, b"old");
    control(&mut driver, 1, 6, 0).unwrap();
    control(&mut driver, 1, 6, 1).unwrap();
    offer(&mut driver, 4096);
    push(&mut driver, b"new");
    assert_eq!(driver.bytes(BUFFER, 7), b"\x03\0\0\0new");
}

#[test]
fn pending_bytes_over_the_limit_are_refused_whole() {
    let mut driver = open();
    let large = vec![0; MAX_PENDING_BYTES / 2 - 4];
    assert!(push(&mut driver, &large) && push(&mut driver, &large));
    assert!(!push(&mut driver, b""));
}

#[test]
fn guest_frames_come_out_whole_however_they_are_cut() {
    let mut driver = open();
    for piece in [&b"\x05\0"[..], b"\0\0he", b"llo\x02\0\0\0", b"ab\0\0\0\0"] {
        transmit(&mut driver, piece).unwrap();
    }
    let payloads: Vec<_> = std::iter::from_fn(|| driver.transport.device.pop()).collect();
    assert_eq!(payloads, [b"hello".to_vec(), b"ab".to_vec(), b"".to_vec()]);
}

#[test]
fn guest_frame_over_the_limit_ends_the_vm() {
    let mut driver = open();
    assert!(matches!(
        transmit(&mut driver, &u32::MAX.to_le_bytes()),
        Err(Abuse::Frame(_))
    ));
}

#[test]
fn guest_output_stops_being_read_while_nobody_fetches_it() {
    let mut driver = open();
    let frame = [&60_000u32.to_le_bytes()[..], &[7; 60_000]].concat();
    for _ in 0..20 {
        transmit(&mut driver, &frame).unwrap();
    }
    let taken = driver.used(AGENT_TX).0;
    assert!((4..=5).contains(&taken), "{taken}");
    let mut fetched = 0;
    while driver.transport.device.pop().is_some() {
        fetched += 1;
        serve_waiting(&mut driver);
    }
    assert_eq!((fetched, driver.used(AGENT_TX).0), (20, 20));
}

#[test]
fn driver_is_interrupted_for_sent_buffers_only_where_it_had_to_wait_for_them() {
    let mut driver = open();
    driver.write(VIRTIO_MMIO_INTERRUPT_ACK, u32::MAX).unwrap();
    let frame = [&60_000u32.to_le_bytes()[..], &[7; 60_000]].concat();
    for _ in 0..20 {
        transmit(&mut driver, &frame).unwrap();
        assert!(!driver.transport.line(), "a kick takes what it brings, or leaves it");
    }
    while driver.transport.device.pop().is_some() {}
    serve_waiting(&mut driver);
    assert!(driver.transport.line());
}

#[test]
fn buffers_outside_of_memory_end_the_vm() {
    for (address, length) in [(HOLE, 8), (HOLE - 4, 8), (u64::MAX - 3, 8)] {
        let mut driver = open();
        let result = driver.send(AGENT_TX, &[(address, length, 0, 0)]);
        assert!(matches!(result, Err(Abuse::Address { .. })), "{address:#x}: {result:?}");

        let mut driver = open();
        driver.table(AGENT_RX, &[(address, length, WRITE, 0)]);
        driver.offer(AGENT_RX, 0);
        driver.transport.device.push(b"0123456789");
        let result = driver.kick(AGENT_RX);
        assert!(matches!(result, Err(Abuse::Address { .. })), "{address:#x}: {result:?}");
    }
}

#[test]
fn receive_buffer_without_room_ends_the_vm() {
    for descriptors in [
        vec![(BUFFER, 0, WRITE, 0)],
        vec![(BUFFER, 16, 0, 0)],
        vec![(BUFFER, 8, NEXT, 1), (OUT, 0, WRITE, 0)],
    ] {
        let mut driver = open();
        driver.transport.device.push(b"payload");
        let result = driver.send(AGENT_RX, &descriptors);
        assert!(matches!(result, Err(Abuse::NoRoom { .. })), "{result:?}");
    }
}

#[test]
fn control_messages_that_are_cut_or_flood_end_the_vm() {
    let mut driver = Driver::ready(Console::new());
    assert!(matches!(
        driver.send(CONTROL_TX, &[(OUT, 7, 0, 0)]),
        Err(Abuse::Control(_))
    ));

    let mut driver = Driver::ready(Console::new());
    let flood = (0..100).try_for_each(|_| control(&mut driver, 0, 0, 1));
    assert!(matches!(flood, Err(Abuse::Control(_))));
}

#[test]
fn control_messages_for_other_ports_or_events_are_ignored() {
    let mut driver = Driver::ready(Console::new());
    for (port, event, value) in [(0, 3, 1), (2, 3, 1), (u32::MAX, 6, 1), (1, 99, 1), (1, 3, 0)] {
        control(&mut driver, port, event, value).unwrap();
    }
    offer(&mut driver, 64);
    push(&mut driver, b"x");
    assert_eq!(driver.used(AGENT_RX).0, 0, "no port was opened");
}

#[test]
fn payloads_that_come_together_go_into_one_buffer() {
    let mut driver = open();
    offer(&mut driver, 64);
    for payload in [b"one", b"two"] {
        assert!(driver.transport.device.push(payload));
    }
    assert_eq!(driver.used(AGENT_RX).0, 0);
    serve_waiting(&mut driver);
    assert_eq!(driver.used(AGENT_RX).0, 1);
    assert_eq!(driver.bytes(BUFFER, 14), b"\x03\0\0\0one\x03\0\0\0two");
}

#[test]
fn driver_reset_forgets_both_directions() {
    let mut driver = open();
    push(&mut driver, b"old");
    transmit(&mut driver, b"\x05\0\0\0he").unwrap();
    driver.write(VIRTIO_MMIO_STATUS, 0).unwrap();
    assert_eq!(driver.transport.device.waiting_queues(), [None, None]);
    assert!(driver.transport.device.pop().is_none());
}
