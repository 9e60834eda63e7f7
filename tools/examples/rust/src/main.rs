//! Says hello to another node: a message there and an answer back, by the crate `rdma-sys`.
//!
//!     LIBCLANG_PATH=/usr/lib/llvm-14/lib cargo build --release
//!     flitnet exec n0 -- target/release/hello server 7471
//!     flitnet exec n1 -- target/release/hello client 127.1.0.1 7471

use rdma_sys::*;
use std::ffi::CString;
use std::io::{Error, Result};
use std::ptr::{null, null_mut};

const BYTES: usize = 64;

/// What librdmacm returns: 0, or -1 with errno.
fn done(code: i32) -> Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

/// A region of one message.
struct Message {
    bytes: Box<[u8; BYTES]>,
    mr: *mut ibv_mr,
}

impl Message {
    fn new(id: *mut rdma_cm_id) -> Result<Message> {
        let mut bytes = Box::new([0; BYTES]);
        let mr = unsafe { rdma_reg_msgs(id, bytes.as_mut_ptr().cast(), BYTES) };
        if mr.is_null() {
            return Err(Error::last_os_error());
        }
        Ok(Message { bytes, mr })
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        unsafe { rdma_dereg_mr(self.mr) };
    }
}

/// A listening endpoint without an address, a connecting one with it.
fn endpoint(address: Option<&str>, port: &str) -> Result<*mut rdma_cm_id> {
    let node = address.map(|a| CString::new(a).unwrap());
    let service = CString::new(port).unwrap();
    let mut id = null_mut();
    unsafe {
        let mut hints: rdma_addrinfo = std::mem::zeroed();
        hints.ai_port_space = rdma_port_space::RDMA_PS_TCP as i32;
        if address.is_none() {
            hints.ai_flags = RAI_PASSIVE as i32;
        }
        let mut found = null_mut();
        let name = node.as_ref().map_or(null(), |n| n.as_ptr());
        done(rdma_getaddrinfo(name, service.as_ptr(), &hints, &mut found))?;
        let mut attr: ibv_qp_init_attr = std::mem::zeroed();
        attr.cap.max_send_wr = 1;
        attr.cap.max_recv_wr = 1;
        attr.cap.max_send_sge = 1;
        attr.cap.max_recv_sge = 1;
        attr.sq_sig_all = 1;
        let made = rdma_create_ep(&mut id, found, null_mut(), &mut attr);
        rdma_freeaddrinfo(found);
        done(made)?;
    }
    Ok(id)
}

fn wait_for_peer(port: &str) -> Result<*mut rdma_cm_id> {
    let listener = endpoint(None, port)?;
    let mut id = null_mut();
    unsafe {
        done(rdma_listen(listener, 1))?;
        done(rdma_get_request(listener, &mut id))?;
    }
    Ok(id)
}

fn completed(count: i32, wc: &ibv_wc) -> Result<()> {
    if count == 1 && wc.status == ibv_wc_status::IBV_WC_SUCCESS {
        Ok(())
    } else {
        Err(Error::other(format!("completion with status {}", wc.status)))
    }
}

fn say(id: *mut rdma_cm_id, message: &mut Message, text: &str) -> Result<()> {
    message.bytes[..text.len()].copy_from_slice(text.as_bytes());
    unsafe {
        let mut wc: ibv_wc = std::mem::zeroed();
        let at = message.bytes.as_mut_ptr().cast();
        done(rdma_post_send(id, null_mut(), at, BYTES, message.mr, 0))?;
        completed(rdma_get_send_comp(id, &mut wc), &wc)
    }
}

fn hear(id: *mut rdma_cm_id, message: &Message) -> Result<()> {
    unsafe {
        let mut wc: ibv_wc = std::mem::zeroed();
        completed(rdma_get_recv_comp(id, &mut wc), &wc)?;
    }
    let text = String::from_utf8_lossy(&message.bytes[..]);
    println!("heard: {}", text.trim_end_matches('\0'));
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (serves, id) = match words[..] {
        ["server", port] => (true, wait_for_peer(port)?),
        ["client", address, port] => (false, endpoint(Some(address), port)?),
        _ => {
            eprintln!("usage: hello server PORT | hello client ADDRESS PORT");
            std::process::exit(2);
        }
    };
    let mut heard = Message::new(id)?;
    let mut said = Message::new(id)?;
    unsafe {
        // Before the connection stands, so that the first message finds it.
        let at = heard.bytes.as_mut_ptr().cast();
        done(rdma_post_recv(id, null_mut(), at, BYTES, heard.mr))?;
        done(if serves {
            rdma_accept(id, null_mut())
        } else {
            rdma_connect(id, null_mut())
        })?;
    }
    if serves {
        hear(id, &heard)?;
        say(id, &mut said, "hello to you, from Rust")?;
    } else {
        say(id, &mut said, "hello from Rust")?;
        hear(id, &heard)?;
    }
    unsafe {
        rdma_disconnect(id);
        drop((heard, said));
        rdma_destroy_ep(id);
    }
    Ok(())
}
